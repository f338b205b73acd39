// Package naive computes every number of a report from all events of a fleet, by plain loops over lists. Tests compare
// it with the answers of the folds. It imports nothing of package consumer.
//
// Its results have the form of the JSON answers (docs/output.md), so that the keys are compared too. It does not know
// green contexts, multicast objects, restarts of a producer, and the limits of the folds.
package naive
