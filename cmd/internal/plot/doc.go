// Package plot draws charts of values over time: memory, rates and counts.
//
// Values. A step series keeps a value until its next point. A stack shows the largest series at the bottom.
//
// Peaks. Drawing reduces each series to the first, least, largest and last point of at most half a pixel. So the
// maximum of a series is always drawn, however short it was. A column of a stack shows the moment of its largest
// total. The total is exact for series of few points; otherwise its parts may be from different moments of half a
// pixel.
//
// Memory. Points are read once, one series after the other. Memory is bounded by the width of the picture and Limit,
// not by the number of points or of series.
//
// Units. Memory is in KiB, MiB, GiB; rates are in kB/s, MB/s, GB/s as everywhere in gputap; counts are in thousands,
// millions. The range of the values chooses the unit.
//
// Reading. Series differ in luminance, and in hatching or markers: a print without colors stays readable.
//
// Bytes. Equal charts give equal bytes.
//
// Concurrency. Charts share nothing; different goroutines may draw different charts.
package plot
