// Package answer joins the reports of all folds by process. gputap run joins the folds of its own process; the commands
// that ask a fleet join the replies of its consumers. Both show the same Snapshot.
//
// The JSON keys of its types are a contract: docs/output.md, docs/answers.md. One file for each fold knows the types of
// its report.
package answer
