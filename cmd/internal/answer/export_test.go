package answer

// Tests choose the time, because NATS stores their messages within a moment.
var (
	StatusAt   = (*Fleet).statusAt
	OverviewAt = (*Fleet).overviewAt
)
