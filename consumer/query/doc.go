// Package query asks the consumers of a fleet about their states. Service answers for the shards that this process
// owns; Client asks every shard of a fold and gathers the replies.
//
// Subjects. A shard of a fold listens on schema.QuestionSubject, without a queue group, as a NATS micro service. Only
// the owner of a shard answers, and it stops when it loses the lease. A Client never joins a consumer group.
//
// Wire. A question is one JSON object, Question. An answer is one or more messages. The header Gputap-Page of each is a
// Page in JSON; the first page only announces the answer. The bodies of all messages, joined, are one JSON object per
// line, each of them a row. A message with the error headers of package micro ends an answer that failed.
//
// Consistency. A Service copies the rows between two batches, then encodes and sends them: an answer is the state after
// the message that Page.Applied names. Answers of two shards may be of different moments.
//
// Ownership. Each page carries the epoch of the owner. If two instances answer for one shard, a Client uses the answer
// of the higher epoch.
//
// Bounds. A Service answers two questions at a time, queues 256, and rejects more. It counts questions by result. No
// message is larger than the server's max_payload. A Client keeps at most 512 MiB of one answer.
//
// Concurrency. Run blocks until every goroutine that it started has ended. Any number of goroutines may use one Client.
package query
