package analyze

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/source"
)

// The subjects of rows, and their measures.
const (
	whatProcess = "process"
	whatMemory  = "memory"
	whatKernel  = "kernel"
	whatCopy    = "copy"

	measurePeak        = "peak_bytes"
	measureLive        = "live_bytes"
	measureGrowth      = "growth_bytes_per_hour"
	measureAllocations = "allocations"
	measureLaunches    = "launches"
	measureCopyCalls   = "copy_calls"
	measureCopyBytes   = "copy_bytes"
	measureCalls       = "calls"
	measureBytes       = "bytes"
	measureThroughput  = "bytes_per_second"
)

// GroupDiff is one figure of a group in both runs.
type GroupDiff struct {
	What    string   `json:"what"` // memory, kernel or copy
	Measure string   `json:"measure"`
	Name    string   `json:"name"`
	A       *float64 `json:"a"` // null: unknown
	B       *float64 `json:"b"`
	Change  *float64 `json:"change"` // b - a

	weight float64 // of the change
}

// ProcessDiff is the processes of one comm and rank in both runs.
type ProcessDiff struct {
	Comm   string      `json:"comm"`
	Rank   *int64      `json:"rank"` // null: outside jobs, or unknown
	A      Figures     `json:"a"`
	B      Figures     `json:"b"`
	Groups []GroupDiff `json:"groups"` // the largest change first

	figures []GroupDiff // rows of A and B, with a change
}

// Diff compares two runs.
type Diff struct {
	Processes []ProcessDiff       `json:"processes"` // the largest change first
	Findings  map[string]Findings `json:"findings"`  // of a and b
	Complete  bool                `json:"complete"`
	Missing   []string            `json:"missing"`
	Notes     []string            `json:"notes"`
}

func diffCommand(p *app.Process) *cobra.Command {
	q := &question{p: p}
	cmd := &cobra.Command{
		Use: "diff A B", Short: "Compare two recordings, such as a good and a bad run: largest change first",
		Long: `Compare the memory, launches and copies of two recordings, such as a good and a bad run. Processes are matched by
command name and, in jobs, by rank. The figures of several such processes are added. The order is that of the changes
as a share of the whole run.

Exit status: 0 success; 1 an error; 2 wrong flags; 4 the data are incomplete, and the answer says what is missing.`,
		Example: `  gputap analyze diff good.gputap bad.gputap
  gputap analyze diff good.gputap bad.gputap --comm python3 -o json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return q.diff(cmd.Context(), args[0], args[1]) },
	}
	formats := []string{"text", "json", "csv"}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&q.out, "output", "o", formats[0], "output format: "+strings.Join(formats, ", "))
	q.AddProcessFlags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	cmd.PreRunE = func(*cobra.Command, []string) error { return q.parse(formats) }
	return cmd
}

func (q *question) diff(ctx context.Context, pathA, pathB string) error {
	a, err := readSide(ctx, pathA, &q.Range, q.p.Log)
	if err != nil {
		return err
	}
	b, err := readSide(ctx, pathB, &q.Range, q.p.Log)
	if err != nil {
		return err
	}
	d := compare(a, b)
	for _, text := range d.Notes {
		fmt.Fprintln(q.p.Stderr, text)
	}
	switch q.out {
	case "json":
		out := json.NewEncoder(q.p.Stdout)
		out.SetEscapeHTML(false)
		err = out.Encode(d)
	case "csv":
		err = writeTable(q.p.Stdout, diffRows(d))
	default:
		out := &app.Output{Writer: q.p.Stdout}
		writeDiff(out, d)
		err = out.Err
	}
	return cmp.Or(err, source.Incomplete(d.Missing))
}

// compare returns the differences of two runs.
func compare(a, b *side) *Diff {
	d := &Diff{Processes: []ProcessDiff{}, Missing: []string{}, Notes: []string{},
		Findings: map[string]Findings{"a": a.Findings, "b": b.Findings}}
	for _, text := range append(a.Missing, a.unrecorded(b)...) {
		d.Missing = append(d.Missing, "a: "+text)
	}
	for _, text := range append(b.Missing, b.unrecorded(a)...) {
		d.Missing = append(d.Missing, "b: "+text)
	}
	for _, text := range a.Notes {
		d.Notes = append(d.Notes, "a: "+text)
	}
	for _, text := range b.Notes {
		d.Notes = append(d.Notes, "b: "+text)
	}
	d.Complete = len(d.Missing) == 0
	all := totals(a, b)
	for _, r := range union(a.processes, b.processes, role.compare) {
		d.Processes = append(d.Processes, compareRole(r, a.work(r), b.work(r), all))
	}
	slices.SortStableFunc(d.Processes, func(x, y ProcessDiff) int { return cmp.Compare(y.largest(), x.largest()) })
	return d
}

// work returns the work of a role, which may be empty.
func (s *side) work(r role) *work { return cmp.Or(s.processes[r], &work{}) }

// union returns the sorted keys of two maps.
func union[K comparable, V any](a, b map[K]V, order func(K, K) int) (keys []K) {
	for k := range a {
		keys = append(keys, k)
	}
	for k := range b {
		if _, both := a[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, order)
	return keys
}

// totals returns the larger total of both runs, by measure.
func totals(a, b *side) map[string]float64 {
	all := map[string]float64{}
	for _, s := range []*side{a, b} {
		sums := map[string]float64{}
		for _, w := range s.processes {
			for measure, v := range w.values() {
				if v != nil {
					sums[measure] += *v
				}
			}
		}
		for measure, sum := range sums {
			all[measure] = max(all[measure], sum)
		}
	}
	all[measureGrowth] = all[measurePeak] // a growth by the peak in an hour weighs 1
	all[measureCalls], all[measureBytes] = all[measureCopyCalls], all[measureCopyBytes]
	return all
}

// values returns the figures by measure.
func (f *Figures) values() map[string]*float64 {
	return map[string]*float64{
		measurePeak: new(float64(f.Peak)), measureLive: new(float64(f.Live)), measureGrowth: f.Growth,
		measureAllocations: new(float64(f.Allocations)), measureLaunches: new(float64(f.Launches)),
		measureCopyCalls: new(float64(f.CopyCalls)), measureCopyBytes: new(float64(f.CopyBytes)),
	}
}

func compareRole(r role, a, b *work, all map[string]float64) ProcessDiff {
	p := ProcessDiff{Comm: r.comm, A: a.Figures, B: b.Figures, Groups: []GroupDiff{}}
	if r.rank >= 0 {
		p.Rank = &r.rank
	}
	was, is := a.values(), b.values()
	for measure := range was {
		name := groupName{whatProcess, measure, ""}
		p.figures = append(p.figures, rowOf(name, was[measure], is[measure], all[measure]))
	}
	for _, name := range union(a.groups, b.groups, groupName.compare) {
		p.Groups = append(p.Groups, rowOf(name, new(a.groups[name]), new(b.groups[name]), all[name.measure]))
	}
	for _, name := range union(a.copies, b.copies, cmp.Compare[string]) {
		x, y := a.copies[name], b.copies[name]
		one := rowOf(groupName{whatCopy, measureThroughput, name}, x.throughput(), y.throughput(), 0)
		if one.Change != nil && all[measureBytes] > 0 { // the share of the copies is that of their bytes
			share := float64(max(x.bytes, y.bytes)) / all[measureBytes]
			one.weight = share * math.Abs(*one.Change) / max(*one.A, *one.B)
		}
		p.Groups = append(p.Groups, one)
	}
	slices.SortFunc(p.Groups, heavier)
	slices.SortFunc(p.figures, heavier)
	return p
}

// rowOf returns a row whose change weighs as much as its share of the total.
func rowOf(n groupName, a, b *float64, total float64) GroupDiff {
	g := GroupDiff{What: n.what, Measure: n.measure, Name: n.name, A: a, B: b}
	if a != nil && b != nil {
		g.Change = new(*b - *a)
		if total > 0 {
			g.weight = math.Abs(*g.Change) / total
		}
	}
	return g
}

func (n groupName) compare(to groupName) int {
	return cmp.Or(cmp.Compare(n.what, to.what), cmp.Compare(n.name, to.name), cmp.Compare(n.measure, to.measure))
}

// heavier orders rows by the weight of their change, the largest first.
func heavier(x, y GroupDiff) int {
	return cmp.Or(cmp.Compare(y.weight, x.weight),
		groupName{x.What, x.Measure, x.Name}.compare(groupName{y.What, y.Measure, y.Name}))
}

// largest returns the weight of the largest change of the processes.
func (p *ProcessDiff) largest() (weight float64) {
	for _, rows := range [][]GroupDiff{p.figures, p.Groups} {
		if len(rows) > 0 {
			weight = max(weight, rows[0].weight)
		}
	}
	return weight
}

// shown returns the rows with a change, of all processes, the largest first.
func (d *Diff) shown() (list []ranked) {
	for i := range d.Processes {
		p := &d.Processes[i]
		for _, g := range slices.Concat(p.figures, p.Groups) {
			if g.Change != nil && *g.Change != 0 {
				list = append(list, ranked{p.Comm, rankText(p.Rank), g})
			}
		}
	}
	slices.SortStableFunc(list, func(x, y ranked) int { return cmp.Compare(y.weight, x.weight) })
	return list
}

// ranked is a row of text.
type ranked struct {
	comm, rank string
	GroupDiff
}

func rankText(rank *int64) string {
	if rank == nil {
		return "-"
	}
	return fmt.Sprint(*rank)
}
