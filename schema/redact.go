package schema

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Private says what a string names that a batch may not show to strangers.
type Private uint8

// Values of Private.
const (
	PrivateNone Private = iota // may be shown: names of programs, threads, functions, variables, GPUs and calls
	PrivateCluster
	PrivateHost
	PrivateJob
	PrivateUser
	PrivatePath
	PrivateContainer
	PrivatePod
	PrivateUnit
	PrivateAlert // id of an alert: a hash over private names
	PrivateText  // a sentence that may contain private names
	numPrivate
)

var privateWords = [numPrivate]string{
	PrivateNone: "none", PrivateCluster: "cluster", PrivateHost: "host", PrivateJob: "job", PrivateUser: "user",
	PrivatePath: "path", PrivateContainer: "container", PrivatePod: "pod", PrivateUnit: "unit",
	PrivateAlert: "alert", PrivateText: "text",
}

func (p Private) String() string { return privateWords[min(p, numPrivate-1)] }

// privateFields are the private fields of dictionaries, by name. All other texts of Dictionaries may be shown.
var privateFields = map[Dictionary]map[string]Private{
	DictProcesses: {
		"exe": PrivatePath, "container": PrivateContainer, "user": PrivateUser, "cgroup": PrivatePath,
		"pod": PrivatePod, "unit": PrivateUnit, "job": PrivateJob,
	},
	DictLibraries: {"path": PrivatePath},
	DictStacks:    {"frames": PrivatePath}, // of the module behind a function
}

// Redact appends a message to dst in which each private string is replaced by what pseudonym returns, which is not
// called for "". Everything else stays byte for byte, but for keys and fields that this version does not know: they
// become nil, because they may be private. It refuses a message that Decode refuses, and one of an unknown kind. It
// leaves the message as a batch in b, which has the strings from before.
func (d *Decoder) Redact(dst, data []byte, b *Batch, pseudonym func(Private, string) string) ([]byte, error) {
	if err := d.Decode(data, b); err != nil {
		return dst, err
	}
	if b.Kind == KindNone {
		return dst, fmt.Errorf("%w: unknown kind", ErrMalformed)
	}
	d.reader.Reset(data)
	d.dec.ResetReader(&d.reader)
	r := redaction{Decoder: d, out: dst, pseudonym: pseudonym}
	n, err := d.mapLength()
	for range max(n, 0) {
		var key []byte
		if key, err = d.word(); err == nil {
			err = r.entry(string(key), b.Kind)
		}
		if err != nil {
			return dst, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	return append(r.out, data[r.copied:]...), err
}

// redaction is one call of Redact.
type redaction struct {
	*Decoder
	out       []byte
	copied    int // bytes of the message that are in out
	pseudonym func(Private, string) string
}

// entry passes over the value of a key.
func (r *redaction) entry(key string, kind Kind) error {
	switch key {
	case keyCluster:
		return r.replace(PrivateCluster)
	case keyHost:
		if kind == KindRank {
			return r.replace(PrivateJob)
		}
		return r.replace(PrivateHost)
	case keyOrigin:
		return r.replace(PrivateHost)
	case keyVersion, keyKind, keyBoot, keyRun, keySeq, keyEvents, keyOffset, keyFirst, keyLast, keyLost, keyColumns,
		keyLinux, keyProducer, keyOlder:
		return r.skip(0)
	}
	for dict := range numDictionaries {
		if spec := &Dictionaries[dict]; spec.Key == key && dict != DictNone {
			if spec.Bare {
				return r.skip(0)
			}
			return r.rows(spec, privateFields[dict])
		}
	}
	return r.remove()
}

// rows passes over a dictionary.
func (r *redaction) rows(spec *DictionarySpec, private map[string]Private) error {
	n, err := r.length()
	for range n {
		var fields int
		if fields, err = r.length(); err != nil {
			return err
		}
		for i := range fields {
			switch {
			case i >= len(spec.Fields):
				err = r.remove()
			case spec.Fields[i].Name == "frames":
				err = r.frames()
			case private[spec.Fields[i].Name] != PrivateNone:
				err = r.replace(private[spec.Fields[i].Name])
			default:
				err = r.skip(0)
			}
			if err != nil {
				return err
			}
		}
	}
	return err
}

// replace replaces the next string.
func (r *redaction) replace(what Private) error {
	at := r.at()
	s, err := r.word()
	if err != nil || len(s) == 0 {
		return err
	}
	r.out = append(r.out, r.data[r.copied:at]...)
	r.out = appendString(r.out, r.pseudonym(what, string(s)))
	r.copied = r.at()
	return nil
}

// frames passes over the frames of a call stack. Functions stay, and paths of modules are replaced.
func (r *redaction) frames() error {
	n, err := r.length()
	for range n {
		at := r.at()
		var frame []byte
		if frame, err = r.word(); err != nil {
			return err
		}
		function, module, found := cutModule(string(frame))
		if !found {
			continue
		}
		r.out = append(r.out, r.data[r.copied:at]...)
		if module != "" {
			module = r.pseudonym(PrivatePath, module)
		}
		r.out = appendString(r.out, function+" ("+module+")")
		r.copied = r.at()
	}
	return err
}

// cutModule returns the function and the module of a frame: "function (module)". Either may have brackets. If those do
// not match, all behind the first one counts as the module.
func cutModule(frame string) (function, module string, found bool) {
	if !strings.HasSuffix(frame, ")") || !strings.Contains(frame, " (") {
		return frame, "", false
	}
	at, open := len(frame), 0
	for at > 0 && (open > 0 || at == len(frame)) {
		at--
		switch frame[at] {
		case ')':
			open++
		case '(':
			open--
		}
	}
	switch {
	case open > 0:
		at = strings.Index(frame, " (") + 1
	case at == 0 || frame[at-1] != ' ':
		return frame, "", false
	}
	return frame[:at-1], frame[at+1 : len(frame)-1], true
}

// remove replaces the next value by nil.
func (r *redaction) remove() error {
	at := r.at()
	if err := r.skip(0); err != nil {
		return err
	}
	r.out = append(append(r.out, r.data[r.copied:at]...), msgpcode.Nil)
	r.copied = r.at()
	return nil
}

func appendString(dst []byte, s string) []byte {
	s = s[:min(len(s), maxString)]
	switch {
	case len(s) < 32:
		dst = append(dst, msgpcode.FixedStrLow|byte(len(s)))
	case len(s) < 256:
		dst = append(dst, msgpcode.Str8, byte(len(s)))
	default:
		dst = binary.BigEndian.AppendUint16(append(dst, msgpcode.Str16), uint16(len(s)))
	}
	return append(dst, s...)
}
