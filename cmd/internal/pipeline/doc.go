// Package pipeline runs everything in one process: the producer, an embedded NATS server and the consumers. Producer
// and consumers meet only on the server, as they do in a fleet.
//
// Snapshot joins the answers of all folds by process. Its JSON keys are a contract: docs/output.md.
package pipeline
