package plot

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// pictures are charts of every kind. The goldens hold them as SVG.
var pictures = []struct {
	name  string
	chart func() Chart
}{
	{"stacked", stackedPicture},
	{"watermark", watermarkPicture},
	{"runs", runsPicture},
	{"bandwidth", bandwidthPicture},
	{"overlay", overlayPicture},
	{"one-point", func() Chart {
		return Chart{Title: "GPU memory", YLabel: "Memory", Series: []Series{
			{Name: "python3 (pid 4242)", Step: true, Points: Points([]Point{{2 * time.Second, 300 * mib}})}}}
	}},
	{"one-point-that-ends", func() Chart {
		return Chart{Title: "Launches", YLabel: "Launches", Unit: Count, Series: []Series{
			{Name: "a", Points: Points([]Point{{2 * time.Second, 12}})}}}
	}},
	{"no-data", func() Chart {
		return Chart{Title: "GPU memory of job train-7", Subtitle: "host gpu-node-17", YLabel: "Memory",
			Begin: berlin(19, 0, 0), Length: time.Minute, Note: "The stream holds no event of this job."}
	}},
	{"peak-of-one-pixel", func() Chart {
		flat := []Point{{0, 2 * gib}, {2 * time.Hour, 9 * gib}, {2*time.Hour + 1000, 2 * gib}, {6 * time.Hour, 2 * gib}}
		c := Chart{Title: "A peak of one microsecond in six hours", YLabel: "Memory", Stacked: true}
		c.Series = []Series{{Name: "python3 (pid 4242)", Points: Points(flat)},
			{Name: "python3 (pid 4243)", Points: Points([]Point{{time.Hour, gib}, {6 * time.Hour, gib}})}}
		c.Marks = []Mark{{2 * time.Hour, 10 * gib, "watermark"}}
		return c
	}},
	{"eleven-processes", elevenPicture},
	{"hostile-texts", hostilePicture},
	{"past-midnight", midnightPicture},
	{"microseconds", func() Chart {
		return Chart{Title: "Rate ≥ 1 GB/s within 300 µs", YLabel: "Rate", Unit: BytesPerSecond, Series: []Series{
			{Name: "HtoD", Step: true, Ends: true, Points: Points(waves(7, 40, 300*time.Microsecond, 6e8))}}}
	}},
	{"seven-runs", sevenPicture},
	{"processes-that-end", func() Chart { return processes(9) }},
}

func berlin(hour, minute, second int) time.Time {
	zone := time.FixedZone("CET", 3600)
	return time.Date(2026, 11, 24, hour, minute, second, 0, zone)
}

// waves returns a random walk of count points that stays above zero and near level.
func waves(seed uint64, count int, span time.Duration, level float64) []Point {
	random := rand.New(rand.NewPCG(seed, 1))
	value, points := level/4, make([]Point, count)
	for i := range points {
		value = math.Abs(value + (random.Float64()-0.5)*level/4 + (level-value)/50)
		points[i] = Point{span * time.Duration(i) / time.Duration(count-1), math.Round(value)}
	}
	return points
}

// training returns the memory of a training: weights, then steps that allocate and free activations.
func training(weights, activations float64, begin, step time.Duration, steps int) []Point {
	points := []Point{{begin, weights / 4}, {begin + step/4, weights / 2}, {begin + step/2, weights}}
	at := begin + step
	for range steps {
		for part := range 8 {
			points = append(points, Point{at + step*time.Duration(part)/10, weights + activations*float64(part+1)/8})
		}
		points = append(points, Point{at + step*8/10, weights + activations/8}, Point{at + step*9/10, weights})
		at += step
	}
	return append(points, Point{at, 0})
}

func stackedPicture() Chart {
	return Chart{
		Title: "GPU memory by process", Subtitle: "host gpu-node-17 · GPU-5f1c4e2a · NVIDIA H100 80GB HBM3",
		YLabel: "GPU memory", Begin: berlin(19, 0, 0), Stacked: true,
		Series: []Series{
			{Name: "python3 train.py (4242)", Points: Points(
				training(6*gib, 9*gib, 3*time.Second, 10*time.Second, 11))},
			{Name: "tritonserver (977)", Points: Points([]Point{
				{0, 2 * gib}, {30 * time.Second, 3 * gib}, {2 * time.Minute, 3 * gib}})},
		},
	}
}

func watermarkPicture() Chart {
	c := stackedPicture()
	c.Title = "Watermark of GPU memory"
	c.Marks = []Mark{{30 * time.Second, 18 * gib, "watermark"}}
	return c
}

func runsPicture() Chart {
	c := Chart{Title: "GPU memory of three runs", Subtitle: "job train-7", YLabel: "GPU memory"}
	for i := range 3 {
		points := training(float64(4+i)*gib, 3*gib, time.Second, time.Duration(7+2*i)*time.Second, 9)
		name := fmt.Sprintf("run %d", i+1)
		c.Series = append(c.Series, Series{Name: name, Step: true, Ends: true, Points: Points(points)})
		c.Marks = append(c.Marks, Mark{points[len(points)-4].At, float64(7+i) * gib, name})
	}
	return c
}

func bandwidthPicture() Chart {
	return Chart{
		Title: "Bandwidth of copies", YLabel: "Rate", Unit: BytesPerSecond, Begin: berlin(3, 0, 0),
		Series: []Series{
			{Name: "HtoD pinned", Step: true, Ends: true, Points: Points(waves(1, 120, 20*time.Minute, 22e9))},
			{Name: "HtoD pageable", Step: true, Ends: true, Points: Points(waves(2, 120, 20*time.Minute, 6e9))},
			{Name: "DtoH pinned", Step: true, Ends: true, Points: Points(waves(3, 120, 20*time.Minute, 14e9))},
		},
		Note: "Asynchronous copies count when their call returns.",
	}
}

func overlayPicture() Chart {
	c := stackedPicture()
	c.Title = "GPU memory by process and as nvidia-smi reports it"
	var smi []Point
	for at := -20 * time.Second; at < 3*time.Minute; at += 100 * time.Millisecond {
		value := 3.1 * gib
		if at > 5*time.Second {
			value = 19.2 * gib
		}
		if at > 113*time.Second {
			value = 3.1 * gib
		}
		smi = append(smi, Point{at, value})
	}
	c.Overlay = []Series{{Name: "nvidia-smi GPU 0", Step: true, Ends: true, Points: Points(smi)}}
	c.Marks = []Mark{{30 * time.Second, 18 * gib, "watermark"}}
	c.Note = "nvidia-smi includes contexts and processes that gputap does not watch."
	return c
}

func elevenPicture() Chart {
	c := Chart{Title: "GPU memory by process", YLabel: "GPU memory", Stacked: true}
	for i := range 11 {
		c.Series = append(c.Series, Series{
			Name:   fmt.Sprintf("worker-%d (%d)", i, 4000+i),
			Points: Points(waves(uint64(i), 60, 40*time.Minute, float64(11-i)*400*mib)),
		})
	}
	return c
}

func sevenPicture() Chart {
	c := Chart{Title: "Live allocations of eight runs", YLabel: "Allocations", Unit: Count}
	for i := range 8 {
		c.Series = append(c.Series, Series{
			Name: fmt.Sprintf("run %c", 'A'+i), Step: i%2 == 0, Ends: true,
			Points: Points(waves(uint64(i)+40, 50, time.Duration(60+5*i)*time.Second, float64(i+2)*3000)),
		})
	}
	return c
}

func hostilePicture() Chart {
	c := stackedPicture()
	c.Title = "GPU memory ≥ 1 GiB of <script>alert(1)</script> & friends: " +
		"a title that is so long that no picture of a usual width could hold it in one line, nor in two lines, " +
		"because it goes on and on and on about everything that the job did on that day"
	c.Series[0].Name = "/opt/conda/envs/research/bin/python3 -m torch.distributed.run --nproc-per-node 8 (4242)"
	c.Series[1].Name = "naïve \"größe\" 5 µs\x00\x1b[31m (977)"
	c.Marks = []Mark{
		{30 * time.Second, 18 * gib, "watermark of /opt/conda/envs/research/bin/python3 -m torch.distributed.run"},
		{31 * time.Second, 12 * gib, "second"}, {111 * time.Second, 18 * gib, "third"},
	}
	c.Note = "Incomplete: 3 batches of gpu-node-17 are lost, and 12 allocations were made before the range began. " +
		"What was allocated before is not part of this chart, because neither the stream nor the recording holds it."
	return c
}

func midnightPicture() Chart {
	c := stackedPicture()
	c.Begin = berlin(23, 50, 0)
	c.Length = 20 * time.Minute
	c.Series[0].Points = Points(training(6*gib, 9*gib, 3*time.Second, 100*time.Second, 10))
	c.Series[1].Points = Points([]Point{{0, 2 * gib}, {5 * time.Minute, 3 * gib}})
	return c
}
