package snapshot

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestReaderReadsWhatWriterWrote(t *testing.T) {
	at := time.Unix(1_700_000_000, 7).UTC()
	var w Writer
	for range 2 { // the second time in the same memory
		w.Reset()
		for _, v := range []uint64{0, 1, 127, 128, math.MaxUint64} {
			w.Uint(v)
		}
		for _, v := range []int64{0, -1, math.MinInt64, math.MaxInt64} {
			w.Int(v)
		}
		w.Bool(true)
		w.Bool(false)
		w.Section(Section{"c", "h", []byte{1, 2}})
		for _, s := range []string{"", "train", "a\xff", "train", "a\xff", ""} {
			w.String(s)
		}
		w.Time(time.Time{})
		w.Time(at)
		w.Byte(200)
	}
	r := NewReader(w.Data())
	for _, want := range []uint64{0, 1, 127, 128, math.MaxUint64} {
		if got := r.Uint(); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
	for _, want := range []int64{0, -1, math.MinInt64, math.MaxInt64} {
		if got := r.Int(); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
	if !r.Bool() || r.Bool() || !reflect.DeepEqual(r.Section(), Section{"c", "h", []byte{1, 2}}) {
		t.Error("bools or sections differ")
	}
	for _, want := range []string{"", "train", "a\xff", "train", "a\xff", ""} {
		if got := r.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if !r.Time().IsZero() || r.Time() != at || r.Byte() != 200 {
		t.Error("times differ")
	}
	if r.Err() != nil || r.Room(1) != 0 {
		t.Errorf("%v, %d bytes left", r.Err(), r.Room(1))
	}
	if n := bytes.Count(w.Data(), []byte("train")); n != 1 {
		t.Errorf("a string stands %d times", n)
	}
}

func TestReaderRefusesDamage(t *testing.T) {
	for _, tt := range []struct {
		name string
		data []byte
		read func(*Reader)
		want string
	}{
		{"nothing", nil, func(r *Reader) { r.Uint() }, "end early"},
		{"number too long", bytes.Repeat([]byte{0xff}, 11), func(r *Reader) { r.Uint() }, "end early"},
		{"bool", []byte{2}, func(r *Reader) { r.Bool() }, "want 0 or 1"},
		{"index", []byte{3}, func(r *Reader) { r.Below(3) }, "want at most 2"},
		{"index of nothing", []byte{0}, func(r *Reader) { r.Below(0) }, "empty list"},
		{"string that is not there", []byte{2}, func(r *Reader) { _ = r.String() }, "not written"},
		{"string that is longer than the bytes", []byte{1, 9, 'x'}, func(r *Reader) { _ = r.String() },
			"9 values in 1 bytes"},
		{"bytes that are longer", []byte{200, 1}, func(r *Reader) { r.Count(1) }, "200 values"},
		{"count", []byte{3, 0, 0, 0, 0, 0}, func(r *Reader) { r.Count(2) }, "3 values in 5 bytes"},
		{"what comes after", []byte{2, 1}, func(r *Reader) { r.Bool(); r.Fail("a second time") }, "want 0 or 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(tt.data)
			tt.read(r)
			if err := r.Err(); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if r.Uint() != 0 || r.Bool() || r.String() != "" || r.Count(1) != 0 || r.Room(1) != 0 {
				t.Error("the reader returns a value after an error")
			}
		})
	}
}

// Each stops at the first value that cannot be read.
func TestEachStopsAtDamage(t *testing.T) {
	r, n := NewReader([]byte{4, 1, 1, 9, 1}), 0
	for range r.Each(1) {
		n++
		r.Bool()
	}
	if n != 3 {
		t.Errorf("%d things were read, want 3", n)
	}
}

// form returns a Form that passes over one number for all hosts and one text for each host.
func form(fold string, version uint64, shard *uint64, host *string) Form {
	return Form{
		Fold: fold, Version: version, Lock: &sync.Mutex{},
		Shard: func(c *Codec) { Uint(c, shard) }, Host: func(c *Codec, _ HostID) { c.String(host) },
	}
}

// save writes sections of version 2 with the number 7 and the text "state".
func save(t *testing.T, hosts []HostID) (all []Section) {
	shard, host := uint64(7), "state"
	f := form("test", 2, &shard, &host)
	err := f.Save(&Writer{}, hosts, func(s Section) error {
		if mu := f.Lock.(*sync.Mutex); !mu.TryLock() {
			t.Error("yield runs under the lock")
		} else {
			mu.Unlock()
		}
		s.Data = bytes.Clone(s.Data)
		all = append(all, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func load(fold string, version uint64, s Section) (shard uint64, host string, err error) {
	err = form(fold, version, &shard, &host).Restore(s)
	return shard, host, err
}

func TestSections(t *testing.T) {
	all := save(t, []HostID{{"c2", "a"}, {"c1", "b"}, {"c1", "a"}, {}, {"c2", "a"}})
	want := []struct {
		id    HostID
		shard uint64
		host  string
	}{{HostID{}, 7, "state"}, {HostID{"c1", "a"}, 0, "state"}, {HostID{"c1", "b"}, 0, "state"},
		{HostID{"c2", "a"}, 0, "state"}}
	if len(all) != len(want) {
		t.Fatalf("%d sections, want %d", len(all), len(want))
	}
	for i, s := range all {
		shard, host, err := load("test", 2, s)
		if err != nil || (HostID{s.Cluster, s.Host}) != want[i].id || shard != want[i].shard || host != want[i].host {
			t.Errorf("section %d: %q/%q with %d and %q, %v; want %+v", i, s.Cluster, s.Host, shard, host, err, want[i])
		}
	}
	none := save(t, nil)
	if shard, host, err := load("test", 2, none[0]); len(none) != 1 || shard != 7 || host != "" || err != nil {
		t.Errorf("without hosts: %d sections, %d, %q, %v", len(none), shard, host, err)
	}
}

func TestVersions(t *testing.T) {
	s := save(t, []HostID{{"c", "h"}})[1]
	for _, tt := range []struct {
		name  string
		fold  string
		reads uint64
		s     Section
		want  error
		says  string
	}{
		{"its own", "test", 2, s, nil, ""},
		{"an older one", "test", 3, s, nil, ""},
		{"a newer one", "test", 1, s, ErrVersion, "version 2, and this program reads up to 1"},
		{"another fold's", "other", 2, s, ErrDamaged, `belongs to fold "test"`},
		{"no bytes", "test", 2, Section{Cluster: "c", Host: "h"}, ErrDamaged, "end early"},
		{"bytes too many", "test", 2, Section{"c", "h", append(bytes.Clone(s.Data), 0)}, ErrDamaged,
			"1 bytes too many"},
		{"version 0", "test", 2, Section{"c", "h", []byte("\x01\x04test\x00")}, ErrDamaged, "version 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := load(tt.fold, tt.reads, tt.s)
			if !errors.Is(err, tt.want) ||
				(err != nil && (!strings.Contains(err.Error(), tt.says) ||
					!strings.Contains(err.Error(), `host "h" of cluster "c"`))) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestSaveStopsAtAnError(t *testing.T) {
	full, n := errors.New("full"), 0
	shard, host := uint64(1), "x"
	err := form("test", 1, &shard, &host).Save(&Writer{}, []HostID{{"c", "h"}}, func(Section) error {
		n++
		return full
	})
	if !errors.Is(err, full) || n != 1 {
		t.Errorf("got %v after %d sections", err, n)
	}
}

// A Codec that reads restores the values that it wrote.
func TestCodecRestoresValues(t *testing.T) {
	type state struct {
		bits   uint8
		number uint64
		signed int32
		flag   bool
		text   string
		at     time.Time
		small  float32
		large  float64
		list   []string
		none   []string
		index  map[string]uint32
		empty  map[string]uint32
	}
	pass := func(c *Codec, s *state) {
		Uint(c, &s.bits)
		Uint(c, &s.number)
		Int(c, &s.signed)
		c.Bool(&s.flag)
		c.String(&s.text)
		c.Time(&s.at)
		c.Float32(&s.small)
		c.Float64(&s.large)
		for _, list := range []*[]string{&s.list, &s.none} {
			List(c, list, 1, func(v *string) { c.String(v) })
		}
		for _, index := range []*map[string]uint32{&s.index, &s.empty} {
			Map(c, index, 2, strings.Compare, func(k *string, v *uint32) {
				c.String(k)
				Uint(c, v)
			})
		}
	}
	want := state{
		bits: 255, number: math.MaxUint64, signed: -7, flag: true, text: "a", at: time.Unix(1, 2).UTC(), small: 1.5,
		large: -2.5, list: []string{"b", "a", "b"}, index: map[string]uint32{"b": 1, "a": 2},
	}
	var w Writer
	pass(&Codec{Writer: &w}, &want)
	var got state
	r := NewReader(w.Data())
	if pass(&Codec{Reader: r}, &got); r.Err() != nil || r.Room(1) != 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, %d bytes left; want %+v", got, r.Err(), r.Room(1), want)
	}
}

func TestCodecRefusesDamage(t *testing.T) {
	for _, tt := range []struct {
		name string
		data []byte
		read func(*Codec)
		want string
	}{
		{"8 bits", []byte{0x80, 2}, func(c *Codec) { Uint(c, new(uint8)) }, "want at most 255"},
		{"32 bits", []byte{0xff, 0xff, 0xff, 0xff, 0xff, 1}, func(c *Codec) { Int(c, new(int32)) }, "too many bits"},
		{"float", make([]byte, 7), func(c *Codec) { c.Float64(new(float64)) }, "end early"},
		{"a key twice", []byte{2, 1, 1, 'a', 2}, func(c *Codec) {
			Map(c, &map[string]bool{}, 1, strings.Compare, func(k *string, _ *bool) { c.String(k) })
		}, "appears twice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &Codec{Reader: NewReader(tt.data)}
			if tt.read(c); !c.Failed() || !strings.Contains(c.Reader.Err().Error(), tt.want) {
				t.Errorf("got %v, want %q", c.Reader.Err(), tt.want)
			}
		})
	}
}
