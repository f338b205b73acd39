// Package consumertest supplies batches and tests for folds. Batches are built, encoded and decoded, so that a test
// applies what went through the wire form. Events keep the order in which a test adds them. Times are nanoseconds of
// the host's KTime.
//
// Traffic and Crowd supply the steps of the snapshot tests that every fold must pass, in package snapshot.
package consumertest
