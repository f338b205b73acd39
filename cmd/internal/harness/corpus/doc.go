// Package corpus holds labelled programs: each behaves like an ordinary GPU program that leaks or does not leak.
//
//   - programs/leak_*.py leak GPU memory at a known rate; programs/ok_*.py do not. The first lines of each file name
//     the program that it stands for, and say why it leaks or not.
//
//   - Each runs for 80 s, launches fewer than 300 kernels a second, and takes at most 6 GiB.
//
//   - Each prints its label and the bytes that it leaked, by its own count, as the last line: programs/program.py.
//
//   - programs/run.py runs them on a machine with a GPU and records them with gputap.
//
//   - testdata/first, second and third hold recordings of the programs on an NVIDIA H200, with the labels.
//
//   - Some programs have no recording here. docs/measurements/detection.md has the findings.
//
//   - Judge folds a recording with event time stretched, and returns the findings for each program.
//
// Nobody chose the programs' rates by gputap's thresholds, and nobody had seen a recording when these were chosen.
package corpus
