package app

import (
	"fmt"
	"io"
)

// Output keeps the first error of a writer, so that a table can be written without checking each line.
type Output struct {
	io.Writer
	Err error
}

func (o *Output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil && o.Err == nil {
		o.Err = fmt.Errorf("write the output: %w", err)
	}
	return n, err
}
