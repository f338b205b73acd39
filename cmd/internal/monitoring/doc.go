// Package monitoring tests the dashboards and the Prometheus rules of deploy/: their form, the names of their metrics,
// and with the build tag bpf that each panel of a dashboard has data when a real Prometheus scrapes a fleet.
package monitoring
