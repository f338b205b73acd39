package event

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/gputap/gputap/cmd/internal/app"
)

// AppendJSON appends the event as one line, with the bytes that encoding/json writes without escapes for HTML: kernel
// names have angle brackets. It takes a quarter of the time.
func (e *Event) AppendJSON(out []byte) []byte {
	out = append(out, `{"time":"`...)
	out = e.Time.UTC().AppendFormat(out, app.Nanoseconds)
	out = appendText(append(out, `","cluster":`...), e.Cluster)
	out = appendText(append(out, `,"host":`...), e.Host)
	out = strconv.AppendUint(append(out, `,"pid":`...), uint64(e.PID), 10)
	out = strconv.AppendUint(append(out, `,"tid":`...), uint64(e.TID), 10)
	out = appendText(append(out, `,"comm":`...), e.Comm)
	out = appendText(append(out, `,"kind":`...), e.Kind)
	out = appendText(append(out, `,"op":`...), e.Op)
	out = appendText(append(out, `,"symbol":`...), e.Symbol)
	if e.Class != "" {
		out = appendText(append(out, `,"class":`...), e.Class)
	}
	if e.Direction != "" {
		out = appendText(append(out, `,"direction":`...), e.Direction)
	}
	out = appendText(append(out, `,"gpu":`...), e.GPU)
	out = strconv.AppendUint(append(out, `,"result":`...), uint64(e.Result), 10)
	if e.Bytes > 0 {
		out = strconv.AppendUint(append(out, `,"bytes":`...), e.Bytes, 10)
	}
	if e.Address != "" {
		out = appendText(append(out, `,"address":`...), e.Address)
	}
	if e.Seconds != 0 {
		out = appendSeconds(append(out, `,"seconds":`...), e.Seconds)
	}
	if e.Kernel != "" {
		out = appendText(append(out, `,"kernel":`...), e.Kernel)
	}
	out = appendNumbers(out, `,"grid":[`, e.Grid)
	out = appendNumbers(out, `,"block":[`, e.Block)
	return append(out, "}\n"...)
}

// appendText appends a string in quotes. Few have bytes that need an escape.
func appendText(out []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return appendAny(out, text)
		}
	}
	return append(append(append(out, '"'), text...), '"')
}

// appendSeconds appends a number that is not negative.
func appendSeconds(out []byte, seconds float64) []byte {
	if seconds < 1e-6 || seconds >= 1e21 { // with an exponent
		return appendAny(out, seconds)
	}
	return strconv.AppendFloat(out, seconds, 'f', -1, 64)
}

func appendAny(out []byte, v any) []byte {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // strings and finite numbers cannot fail
	return append(out, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
}

func appendNumbers(out []byte, key string, numbers []uint32) []byte {
	for i, n := range numbers {
		if i > 0 {
			key = ","
		}
		out = strconv.AppendUint(append(out, key...), uint64(n), 10)
	}
	if len(numbers) == 0 {
		return out
	}
	return append(out, ']')
}
