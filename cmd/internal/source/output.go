package source

import (
	"fmt"
	"os"

	"github.com/gputap/gputap/cmd/internal/app"
)

// NotInput returns an error if the file that --output names is one of the files to read, also by another name or
// through a link: to write it would destroy what is read.
func NotInput(output string, inputs ...string) error {
	to, err := os.Stat(output)
	if err != nil { // it is a new file, or the attempt to write it tells more
		return nil
	}
	for _, input := range inputs {
		if from, err := os.Stat(input); err == nil && from.Mode().IsRegular() && os.SameFile(from, to) {
			return app.Usage(fmt.Errorf("--output %s: this is the file to read, %s; name another file", output, input))
		}
	}
	return nil
}
