package bpf

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -no-global-types -target amd64,arm64 Tap tap.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -no-global-types -target amd64,arm64 Cgroup cgroup.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include
