// Package guest boots a Linux kernel of a distribution in qemu, whose first process is a program of ours: the packages of
// kernels, the initramfs, and what a first process does before it can work.
package guest
