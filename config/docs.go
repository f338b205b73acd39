package config

// docs explains every key: its meaning, its unit, and the default where the default value does not show it. The texts
// are not struct tags, because a tag cannot be wrapped.
var docs = map[string]string{
	"nats.url":          "NATS servers, separated by commas",
	"nats.name":         "name of the connection, which the server shows (default: the name of the program)",
	"nats.creds_file":   "credentials file with a JWT and a seed",
	"nats.nkey_file":    "file with an nkey seed",
	"nats.inbox_prefix": "prefix of reply subjects (default: _INBOX.<program>; of a producer _INBOX.<cluster>.<host>)",
	"nats.tls.ca_file": "certificate of the authority that signed the servers' certificates (default: the system's " +
		"authorities)",
	"nats.tls.cert_file": "client certificate file",
	"nats.tls.key_file":  "key file of the client certificate",

	"producer.cluster":  "name of the cluster to which this host belongs",
	"producer.host":     "name of this host (default: its hostname)",
	"producer.features": "kinds of events to watch: memory, launch, copy, sync, torch",
	"producer.libraries": "libraries of the driver or of PyTorch to watch in addition to those that are found " +
		"(a list of paths)",
	"producer.scan_interval": "time between two scans of /proc for libraries that processes have mapped; " +
		"at least 1ms",
	"producer.uprobes": "how to attach probes: multi (one link for each program, Linux 6.6), " +
		"perf (one perf event for each symbol), or auto",
	"producer.unsafe_return_probes": "attach return probes even where Linux kills confined programs because of them " +
		"(Linux 6.11 to 6.13)",
	"producer.shards":          "number of shards that the bus must have, or the producer exits (0: any number)",
	"producer.batch_events":    "number of events at which a batch is closed",
	"producer.batch_bytes":     "size at which a batch is closed",
	"producer.batch_max_bytes": "largest size of a batch while the batch before it is in flight",
	"producer.batch_age":       "age at which a batch is closed; the reader waits at most as long",
	"producer.spool_bytes":     "memory for batches that are queued while NATS is unreachable",
	"producer.outbox": "directory that keeps batches until they are acked, also across restarts " +
		"(empty: in memory only)",
	"producer.outbox_max_bytes": "largest size of the outbox; when it is full, the oldest launches are dropped first " +
		"and memory events last",
	"producer.ring_bytes": "size of all rings from Linux to the producer together; at least 4MiB " +
		"(resident memory shows twice as much, because Linux maps each ring twice)",
	"producer.heartbeat": "time between two heartbeats of the host, which say how far its events are complete; " +
		"2 s at most while a rank of a job runs there",
	"producer.drain_timeout": "time to publish the last batches at exit",
	"producer.jobs": "find the job and rank of each process by its pod, and by variables of Slurm, torchrun and MPI " +
		"in its environment",
	"producer.filter.comm": "watch only processes with these names, without patterns, as ps -o comm prints " +
		"them at their first CUDA call; a process must pass every filter that is set",
	"producer.filter.pid": "watch only these running processes (a list of pids)",
	"producer.filter.uid": "watch only processes of these users (numbers or names)",
	"producer.filter.container": "watch only these containers: an id, 12 or more of its first digits, " +
		"or the UID of a pod; they may start later",
	"producer.filter.cgroup": "watch only these cgroups and the cgroups inside them: a path in the cgroup 2 " +
		"hierarchy, or the name of one directory; they may be created later",

	"consumer.instance":   "name of this instance in its consumer group (default: a new name at each start)",
	"consumer.checkpoint": "time between two checkpoints of a shard; at least 100ms",
	"consumer.shard": "fold this shard only, and write no checkpoints " +
		"(-1: share all shards and their checkpoints with the other instances)",
	"consumer.from": "where to start reading with consumer.shard: all, new, or a time on the server (RFC 3339)",
	"consumer.pull_max_bytes": "largest size of the messages in flight for each shard; " +
		"less if the bus has more than four shards: 32 MiB divided by their number, but at least 1 MiB",
	"consumer.display_interval": "time between two reports on standard output (0: no reports)",

	"leak.window": "length of the windows of verdicts, at least 1s; a leak is suspect after 30 of them, so use more " +
		"than a thirtieth of the longest time that a model or a cache takes to load",
	"leak.keep_ended": "time for which reports keep an ended process (0: for ever)",
	"leak.mode": "mode of both rules: off, observe (alerts have severity info), alert, or default (each rule " +
		"its own)",
	"leak.cooldown": "time after an alert cleared in which the same finding raises no other",
	"leak.exclude.comm": "commands about which no alert is raised: patterns such as bench*, or for one rule " +
		"leak_growth=bench*",
	"leak.exclude.user":           "users about whose processes no alert is raised (patterns)",
	"leak.exclude.job":            "jobs about whose processes no alert is raised (patterns)",
	"leak.rules.leak_growth.mode": "memory grows without end: off, observe or alert",
	"leak.rules.unfreed_at_exit.mode": "a process freed most of its memory before it ended, and not all: off, " +
		"observe or alert",
	"leak.rules.unfreed_at_exit.min_bytes": "smallest amount that is judged; half a per cent of the GPU if that is " +
		"more",
	"anomaly.mode": "mode of all rules: off, observe (alerts have severity info), alert, or default (each rule " +
		"its own)",
	"anomaly.warmup":   "time after the start of a process in which alloc_size raises no alert about it",
	"anomaly.cooldown": "time after an alert cleared in which the same finding raises no other",
	"anomaly.exclude.comm": "commands about which no alert is raised: patterns such as bench*, or for one rule " +
		"alloc_size=bench*",
	"anomaly.exclude.user": "users about whose processes no alert is raised (patterns)",
	"anomaly.exclude.job":  "jobs about whose processes no alert is raised (patterns)",

	"anomaly.rules.alloc_size.mode":      "one allocation is far larger than all before: off, observe or alert",
	"anomaly.rules.alloc_size.min_bytes": "smallest allocation that is odd",
	"anomaly.rules.alloc_size.factor": "an allocation is odd if it is this many times as large as the largest " +
		"before",
	"anomaly.rules.alloc_size.allocations": "number of allocations that must come before",
	"anomaly.rules.alloc_size.hold": "time to wait for allocations of a similar size, which show that the program " +
		"grows",
	"anomaly.rules.oom.mode":    "a process ran out of memory: off, observe or alert",
	"anomaly.rules.oom.recover": "time to wait for a similar allocation that succeeds",
	"anomaly.rules.alloc_rate.mode": "a process allocates far more often than before: off, observe or " +
		"alert",
	"anomaly.rules.straggler.mode":            "a rank holds up the others of its job: off, observe or alert",
	"anomaly.rules.alloc_rate.factor":         "a rate is odd if it is this many times the usual one",
	"anomaly.rules.alloc_rate.min_per_second": "lowest rate that is odd, in allocations per second",
	"anomaly.rules.launch_collapse.mode": "a process launches far fewer kernels than before: off, observe or " +
		"alert",
	"anomaly.rules.launch_collapse.percent":        "a rate is low if it is below this percentage of the usual one",
	"anomaly.rules.launch_collapse.min_per_second": "lowest usual rate that is judged, in launches per second",
	"anomaly.rules.launch_collapse.for":            "time for which the rate must be low",
	"anomaly.rules.copy_regression.mode":           "synchronous copies became slower: off, observe or alert",
	"anomaly.rules.copy_regression.percent": "copies are slow if their throughput is this percentage below the " +
		"usual one",
	"anomaly.rules.pageable_copies.mode": "a process copies much from or to pageable memory: off, observe or alert " +
		"(severity info in both)",
	"anomaly.rules.pageable_copies.min_bytes_per_second": "lowest rate that counts",
	"anomaly.rules.telemetry_loss.mode":                  "events of a host were lost: off, observe or alert",
	"anomaly.rules.telemetry_loss.quiet":                 "time without loss after which the alert clears",

	"anomaly.rules.host_silent.mode":  "no batch of a host arrives any more: off, observe or alert",
	"anomaly.rules.host_silent.after": "time of silence after which the alert fires",

	"launch.keep":        "time for which a process is kept after its last launch (0: for ever)",
	"launch.max_kernels": "number of kernel names that are kept for each process",
	"bandwidth.keep":     "time for which a process is kept after its last copy (0: for ever)",

	"embedded.listen": "address at which other programs may read the stream, such as 127.0.0.1:4222 " +
		"(port 0: any free port; empty: no listener)",
	"embedded.listen_tls_cert": "certificate file of the embedded server; required if other machines can reach the " +
		"address",
	"embedded.listen_tls_key": "key file of that certificate",
	"embedded.store_max_bytes": "largest size of the store on disk; events may fill half of it, and then the oldest " +
		"are removed",

	"metrics.addr": "address of /metrics, /livez and /readyz (port 0: any free port; empty: not served)",
	"log.level":    "lowest level that is logged: debug, info, warn or error",
	"log.format":   "format of the log: text, json, or auto (text on a terminal, otherwise json)",
}
