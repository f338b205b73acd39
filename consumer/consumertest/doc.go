// Package consumertest makes batches for tests of folds, as a producer would: built, encoded and
// decoded, so that what a test applies went through the wire form. Events keep the order in which a
// test adds them. Times are nanoseconds of the host's KTime.
//
// Resumes, Splits, Hostile, Golden and FuzzRestore are what every fold that can be saved has to stand; Traffic and
// Recorded make the steps for them.
package consumertest
