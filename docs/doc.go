// Package docs holds the user documentation. Its tests run every command of README.md and docs in the order
// of each page, as a reader would paste them, and check links, commands, flags and file names.
package docs
