// Package docs holds the user documentation. Its tests run every command of README.md and docs/*.md
// in the order in which a reader would paste it, and check what the pages link to and name.
package docs
