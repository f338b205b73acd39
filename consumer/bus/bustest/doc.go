// Package bustest runs NATS servers for tests. One server per test binary has an account for each test, so tests run in
// parallel and none waits for a server. Tests that stop a server get one of their own.
package bustest
