package producer

import (
	"os"
	"strings"
)

func readLine(path string) (string, error) {
	b, err := os.ReadFile(path)
	line, _, _ := strings.Cut(string(b), "\n")
	return line, err
}
