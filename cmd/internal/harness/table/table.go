// Package table prints tables in GitHub's Markdown, as docs/measurements shows them.
package table

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Head prints a title and the head of a table. The first column holds text, the others numbers.
func Head(title string, columns ...string) {
	fmt.Printf("\n### %s\n\n", title)
	Row(columns...)
	fmt.Printf("| ---%s |\n", strings.Repeat(" | ---:", len(columns)-1))
}

// Row prints one row.
func Row(cells ...string) { fmt.Printf("| %s |\n", strings.Join(cells, " | ")) }

// Machine describes this machine, and names the day of the measurement.
func Machine() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	cpus := strings.Count(string(text), "processor\t:")
	_, model, _ := strings.Cut(string(text), "model name\t: ")
	model, _, _ = strings.Cut(cmp.Or(model, "unknown CPU"), "\n")
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%s, %d CPUs (%s), Linux %s, %s", time.Now().Format(time.DateOnly), cpus, model,
		strings.TrimSpace(string(release)), runtime.Version())
}
