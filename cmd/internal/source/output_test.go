package source

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gputap/gputap/cmd/internal/app"
)

func TestNotInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in, other := filepath.Join(dir, "in.gtr"), filepath.Join(dir, "other.gtr")
	hard, soft, folder := filepath.Join(dir, "hard"), filepath.Join(dir, "soft"), filepath.Join(dir, "folder")
	if err := errors.Join(os.WriteFile(in, nil, 0o600), os.WriteFile(other, nil, 0o600), os.Link(in, hard),
		os.Symlink(in, soft), os.Symlink(dir, folder)); err != nil {
		t.Fatal(err)
	}
	for output, refused := range map[string]bool{
		in: true, hard: true, soft: true, filepath.Join(folder, "in.gtr"): true, dir + "/./in.gtr": true,
		other: false, dir: false, filepath.Join(dir, "new"): false, "-": false, "/dev/null": false,
	} {
		if err := NotInput(output, "/dev/null", "/no/such/file", in); (app.ExitCode(err) == 2) != refused {
			t.Errorf("%s: %v", output, err)
		}
	}
}
