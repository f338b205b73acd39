//go:build bpf

package bpf

import "testing"

func TestLoad(t *testing.T) {
	tap, err := Load(MinRingBytes, true, true, Filter{})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	tap.Close()
}
