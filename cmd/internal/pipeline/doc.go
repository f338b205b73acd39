// Package pipeline runs everything in one process: the producer, an embedded NATS server and the consumers. Producer
// and consumers meet only on the server, as they do in a fleet.
package pipeline
