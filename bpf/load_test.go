package bpf

import (
	"testing"

	"github.com/gputap/gputap/schema"
)

// TestEveryShapeHasItsPrograms: attach looks them up by name.
func TestEveryShapeHasItsPrograms(t *testing.T) {
	spec, err := LoadTap()
	if err != nil {
		t.Fatal(err)
	}
	for i := range schema.Calls {
		shape := schema.Calls[i].Shape
		if shape == "" {
			continue
		}
		if spec.Programs[string(shape)+"_enter"] == nil {
			t.Errorf("no entry program for shape %s", shape)
		}
		if exit := spec.Programs[string(shape)+"_exit"]; (exit == nil) != shape.EntryOnly() {
			t.Errorf("return program for shape %s: %v", shape, exit != nil)
		}
	}
}
