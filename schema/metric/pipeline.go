package metric

import "slices"

var programFamilies = []Family{
	{Name: "gputap_build_info", Type: Gauge, Component: Program, Life: LifeProgram,
		Labels: []string{"component", "version", "revision", "goversion"},
		Help:   "Always 1; the labels describe the build."},
}

// of makes the families of one component from rows that differ in little.
func of(component Component, life Life, labels []string, rows ...row) []Family {
	var all []Family
	for _, r := range rows {
		all = append(all, Family{Name: r.name, Type: r.kind, Component: component, Life: life,
			Labels: with(labels, r.more...), Help: r.help})
	}
	return all
}

type row struct {
	name string
	kind Type
	more []string // labels
	help string
}

var producerFamilies = of(Producer, LifeProgram, nil,
	row{"gputap_producer_events_total", Counter, []string{"op"}, "Events read from the rings, by what the call does."},
	row{"gputap_producer_events_lost_total", Counter, []string{"reason"}, "Lost events, by cause."},
	row{"gputap_producer_ringbuf_used_ratio", Gauge, nil, "Fill of the fullest ring at the last read."},
	row{"gputap_producer_batch_events", Histogram, nil, "Events in a batch."},
	row{"gputap_producer_batches_total", Counter, []string{"result"},
		"Acked batches, and failed publishes, which are retried."},
	row{"gputap_producer_published_bytes_total", Counter, nil, "Bytes of acked batches."},
	row{"gputap_producer_publish_duration_seconds", Histogram, nil, "Time from publishing a batch to its ack."},
	row{"gputap_producer_event_age_seconds", Histogram, nil, "Age of a batch's last event at its ack."},
	row{"gputap_producer_inflight_publishes", Gauge, nil, "Batches published and not acked."},
	row{"gputap_producer_spool_bytes", Gauge, nil, "Bytes of queued and in-flight batches."},
	row{"gputap_producer_spool_batches", Gauge, nil, "Queued and in-flight batches."},
	row{"gputap_producer_outbox_bytes", Gauge, nil, "Bytes of the outbox's files."},
	row{"gputap_producer_outbox_batches", Gauge, nil, "Batches in the outbox that are not acked."},
	row{"gputap_producer_outbox_oldest_seconds", Gauge, nil, "Age of the oldest batch that is not acked; 0: none."},
	row{"gputap_producer_outbox_dropped_batches_total", Counter, nil,
		"Batches evicted because of producer.outbox_max_bytes; their events count as lost."},
	row{"gputap_producer_outbox_write_errors_total", Counter, nil, "Failed writes to the outbox."},
	row{"gputap_producer_outbox_damaged_total", Counter, nil,
		"Corrupt outbox records found, after a crash or on a bad disk."},
	row{"gputap_producer_outbox_writable", Gauge, nil,
		"1 while the outbox can be written; 0 while only memory holds batches."},
	row{"gputap_producer_nats_connected", Gauge, nil, "1 while NATS is connected."},
	row{"gputap_producer_nats_reconnects_total", Counter, nil, "Connections to NATS after the first one."},
	row{"gputap_producer_shard", Gauge, nil, "Shard of this host's batches; absent until the topology was read."},
	row{"gputap_producer_traced_processes", Gauge, nil, "Running processes that made calls."},
	row{"gputap_producer_forgotten_processes_total", Counter, nil,
		"Processes whose names and graphs were discarded because programs made too many handles."},
	row{"gputap_producer_unknown_gaps_total", Counter, nil,
		"Waits whose time until the thread's next launch is not known, because records were lost or out of order."},
	row{"gputap_producer_malformed_records_total", Counter, nil, "Ring records that no program of this build writes."},
	row{"gputap_producer_attached_probes", Gauge, nil, "Probed functions of all attached libraries."},
	row{"gputap_producer_stepped_probes", Gauge, nil, "Probes that Linux single-steps: about ten times as slow."},
	row{"gputap_producer_attached_libraries", Gauge, nil, "Library files with probes: of the driver, and of PyTorch."},
	row{"gputap_producer_attach_failures_total", Counter, nil, "Libraries that could not be attached."},
	row{"gputap_producer_attach_seconds", Histogram, nil, "Time from the mapping of a new library to its last probe."},
	row{"gputap_producer_sideband", Gauge, nil,
		"1 while side-band records report new mappings; 0 while only scans find them."},
	row{"gputap_producer_sideband_lost_total", Counter, nil,
		"Side-band records lost for lack of room; each loss causes a scan."},
)

var (
	ofInstance = []string{"consumer"}
	ofShard    = []string{"consumer", "shard"}
)

var consumerFamilies = slices.Concat(
	of(Consumer, LifeProgram, ofInstance,
		row{"gputap_consumer_owned_shards", Gauge, nil, "Shards that this instance owns and folds."},
		row{"gputap_consumer_claims_total", Counter, nil, "Shards acquired and restored."},
		row{"gputap_consumer_hand_overs_total", Counter, nil, "Shards released to their preferred instance."},
		row{"gputap_consumer_leases_lost_total", Counter, nil,
			"Shards lost because their lease was not renewed in time."},
		row{"gputap_consumer_fenced_total", Counter, nil,
			"Checkpoints refused because another instance had claimed the shard."},
		row{"gputap_consumer_states_rebuilt_total", Counter, nil,
			"Unusable saved states that were rebuilt from the stream."},
		row{"gputap_consumer_newer_states_total", Counter, nil,
			"Saved states of a newer program that were left to newer instances."},
		row{"gputap_consumer_checkpoints_total", Counter, []string{"result"}, "Checkpoints, by result."},
		row{"gputap_consumer_questions_total", Counter, []string{"result"},
			"Questions by result: answered, failed, rejected (too many at once) or moved (the shard was lost)."},
		row{"gputap_consumer_state_processes", Gauge, nil, "Processes in the state, running and ended."},
		row{"gputap_consumer_state_allocations", Gauge, nil,
			"Live allocations, or blocks of PyTorch's allocator, in the state."},
		row{"gputap_consumer_notifications_total", Counter, []string{"sink", "result"},
			"Published alerts by result: stored, known (a duplicate), unstored (no stream accepts alerts) or failed."},
		row{"gputap_consumer_summaries_total", Counter, []string{"result"},
			"Published summaries of the ranks of a job by result: stored or failed. gputap-anomaly publishes them."},
		row{"gputap_consumer_series", Gauge, []string{"family"},
			"Series on this page, by family, for the families that have a limit."},
		row{"gputap_consumer_series_overflow_total", Counter, []string{"family"},
			"Times that a series above a limit was counted as other, or left out where a sum means nothing."}),
	of(Consumer, LifeShard, ofShard,
		row{"gputap_consumer_batches_total", Counter, []string{"result"}, "Messages read, by outcome."},
		row{"gputap_consumer_events_total", Counter, []string{"kind"}, "Events applied."},
		row{"gputap_consumer_lag_messages", Gauge, nil,
			"Messages of the shard that are stored and not read yet."},
		row{"gputap_consumer_dead_letters_total", Counter, []string{"result"},
			"Useless messages, by whether they were copied to the dead letters."},
		row{"gputap_consumer_unseen_batches_total", Counter, []string{"reason"},
			"Batches from before the first one read of a producer run that do not count as lost, by reason."},
		row{"gputap_consumer_producer_lost_events_total", Counter, []string{"reason"},
			"Events that producers counted as lost, by cause."},
		row{"gputap_consumer_checkpoint_age_seconds", Gauge, nil,
			"Time since a checkpoint of the shard had all that was folded."},
		row{"gputap_consumer_checkpoint_bytes", Gauge, nil, "Size of the shard's last checkpoint."},
		row{"gputap_consumer_event_delay_seconds", Histogram, nil,
			"Age of a batch's last event when the batch was applied."},
		row{"gputap_consumer_handler_duration_seconds", Histogram, nil, "Time to decode and apply one message."}),
	of(Consumer, LifeHost, with(ofShard, Host...),
		row{"gputap_consumer_sequence_gaps_total", Counter, nil, "Gaps in the sequence numbers of a host's batches."},
		row{"gputap_consumer_gap_batches_total", Counter, nil, "Batches missing in those gaps: lost."},
		row{"gputap_consumer_host_last_event_timestamp_seconds", Gauge, nil, "Wall time of a host's last event."},
		row{"gputap_consumer_host_last_heard_timestamp_seconds", Gauge, nil,
			"When NATS stored the last batch of a host, heartbeats included."}),
)
