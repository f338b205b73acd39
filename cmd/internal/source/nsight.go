package source

import (
	"context"
	"fmt"
	"os"

	"github.com/gputap/gputap/producer/nsys"
	"github.com/gputap/gputap/schema/recording"
)

// openNsight converts an export of Nsight Systems into a temporary recording without a name.
func openNsight(ctx context.Context, path string) (*Source, error) {
	file, err := os.CreateTemp("", "gputap-nsight-*")
	if err != nil {
		return nil, fmt.Errorf("convert %s: %w", path, err)
	}
	defer os.Remove(file.Name()) // the Source keeps it open
	summary, err := convert(ctx, path, file)
	if err != nil {
		return nil, err
	}
	s, err := openRecording(file.Name())
	if err != nil {
		return nil, err
	}
	s.Name, s.Nsight = path, &summary
	return s, nil
}

func convert(ctx context.Context, path string, file *os.File) (summary nsys.Summary, err error) {
	w, err := recording.NewWriter(file)
	if err == nil {
		if summary, err = nsys.Convert(ctx, path, w, nsys.Options{}); err == nil {
			err = w.Close()
		}
	}
	if err != nil {
		_ = file.Close() // it is removed
	}
	return summary, err
}
