package app

import "time"

// Nanoseconds is RFC 3339 with all nine digits. time.RFC3339Nano drops zeros at the end.
const Nanoseconds = "2006-01-02T15:04:05.000000000Z07:00"

// Time is a time of an event in JSON and CSV: RFC 3339 in UTC, always with nine digits of nanoseconds.
type Time struct{ time.Time }

func (t Time) String() string { return t.UTC().Format(Nanoseconds) }

// MarshalJSON returns String in quotes.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.UTC().AppendFormat(make([]byte, 0, len(Nanoseconds)), `"`+Nanoseconds+`"`), nil
}
