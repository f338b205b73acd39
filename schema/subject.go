package schema

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// Subjects and JetStream names. The major version of the form is the second token.
const (
	eventPrefix = "gputap.v1.ev."
	// DeadLetterSubjects covers the dead letters of every consumer.
	DeadLetterSubjects = "gputap.v1.dlq.>"
	// DeadLetterStream stores them.
	DeadLetterStream = "GPUTAP_DLQ"
	// AlertSubjects covers the alerts of every consumer.
	AlertSubjects = "gputap.v1.out.alert.>"
	// OutStream stores what consumers publish for other programs.
	OutStream = "GPUTAP_OUT"
	// StateSubjects covers the checkpoints of every fold: fold, shard, part.
	StateSubjects = "gputap.v1.state.>"
	// StateStream stores the last message of each.
	StateStream = "GPUTAP_STATE"
	// LeaseBucket records which instance of a fold owns a shard: keys <fold>.<shard>.
	LeaseBucket = "gputap_lease"
	// StreamPrefix starts the name of every shard's JetStream stream.
	StreamPrefix = "GPUTAP_EV_"
)

// Subject returns the subject of a host's batches of one kind.
func Subject(shard int, cluster, host string, kind Kind) string {
	return string(AppendSubject(make([]byte, 0, 96), shard, cluster, host, kind))
}

// AppendSubject appends a Subject to dst.
func AppendSubject(dst []byte, shard int, cluster, host string, kind Kind) []byte {
	dst = strconv.AppendInt(append(dst, eventPrefix...), int64(shard), 10)
	for _, token := range [...]string{Token(cluster), Token(host), kind.String()} {
		dst = append(append(dst, '.'), token...)
	}
	return dst
}

// ShardSubjects returns the wildcard for every batch of one shard.
func ShardSubjects(shard int) string { return eventPrefix + strconv.Itoa(shard) + ".>" }

// KindSubjects returns the wildcard for the batches of one kind in one shard.
func KindSubjects(shard int, kind Kind) string {
	return eventPrefix + strconv.Itoa(shard) + ".*.*." + kind.String()
}

// StreamName returns the name of the JetStream stream of a shard.
func StreamName(shard int) string { return fmt.Sprintf(StreamPrefix+"%03d", shard) }

// BucketStream returns the name of the JetStream stream behind a key-value bucket.
func BucketStream(bucket string) string { return "KV_" + bucket }

// KeySubject returns the subject of a key in a bucket.
func KeySubject(bucket, key string) string { return "$KV." + bucket + "." + key }

// DeadLetterSubject returns the subject to which a consumer copies malformed batches of a shard.
func DeadLetterSubject(consumer string, shard int) string {
	return "gputap.v1.dlq." + Token(consumer) + "." + strconv.Itoa(shard)
}

// AlertSubject returns the subject of a consumer's alerts about a host.
func AlertSubject(consumer, cluster, host string) string {
	return "gputap.v1.out.alert." + Token(consumer) + "." + Token(cluster) + "." + Token(host)
}

// QuestionSubject returns the subject on which the owner of a shard answers questions about a fold.
func QuestionSubject(fold string, shard int) string {
	return "gputap.v1.q." + Token(fold) + "." + strconv.Itoa(shard)
}

// Shard returns the shard of a host: FNV-1a32 of cluster and host, modulo shards. It hashes the names, not their
// tokens.
func Shard(cluster, host string, shards int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(cluster))
	_, _ = h.Write([]byte(host))
	return int(h.Sum32() % uint32(max(shards, 1)))
}

// Token converts a name to one subject token: characters with a meaning in NATS become underscores. The envelope
// carries the real name.
func Token(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f || r == '.' || r == '*' || r == '>' {
			return '_'
		}
		return r
	}, name)
	if clean == "" {
		return "_"
	}
	return clean
}

// StateSubjectsOf returns the wildcard for the checkpoints of one fold.
func StateSubjectsOf(fold string) string { return "gputap.v1.state." + Token(fold) + ".>" }

// StateSubject returns the subject of one part of a fold's checkpoint of a shard.
func StateSubject(consumer string, shard int, part string) string {
	return "gputap.v1.state." + Token(consumer) + "." + strconv.Itoa(shard) + "." + part
}
