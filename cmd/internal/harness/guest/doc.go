// Package guest boots a distribution's Linux kernel in qemu with a program of ours as its init process: it fetches
// kernels, packs the initramfs, and prepares the guest for the init process.
package guest
