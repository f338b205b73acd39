//go:build bpf

package bpf

import "testing"

func TestLoad(t *testing.T) {
	tap, err := Load(1<<20, 1<<20, true, Filter{})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	tap.Close()
}
