// Package attach keeps probes on every CUDA driver library that a process may call, and knows which process has which
// one mapped. If tensors are wanted, it does the same with PyTorch's libc10.so.
//
// Finding. AttachHost probes the host's own libraries before any program maps them; Step probes them again after their
// files were replaced. Perf side-band records report other files a few milliseconds after their first mapping; where
// Linux refuses side-band records, scans find them later. A file is attached once, whatever the number of processes,
// namespaces and overlays that map it, and detached after no process had it mapped for ten seconds.
//
// Lateness. A process is late if it had a driver library mapped before the last of its probes was attached: gputap
// cannot know whether it made calls meanwhile. A program of the host's own library that starts after AttachHost is
// never late. An exec starts a new image, which is judged anew. PyTorch's library makes no process late.
//
// Loss. Lost side-band records and full queues cause a scan of all processes; nothing stays unattached for good.
//
// Concurrency. Run's goroutine, and AttachHost and Start before it, look for libraries, attach and detach. IsLate,
// Ended, Unseen, TakeChanges, Libraries and Collect may be called from any goroutine.
package attach
