// Package consumertest makes batches for tests of folds, as a producer would: built, encoded and
// decoded, so that what a test applies went through the wire form. Events keep the order in which a
// test adds them. Times are nanoseconds of the host's KTime.
package consumertest
