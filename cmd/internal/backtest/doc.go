// Package backtest is gputap anomaly backtest: it runs the alert rules of gputap-anomaly and gputap-leak over a
// recording, once with the current configuration and once with a changed one, and compares the alerts.
//
// Both runs read every message once, in the order of the file. They use event times alone, so equal input and equal
// configurations give equal alerts. The rule host_silent does not run: it reads the wall clock.
//
// The JSON keys of Result are a contract: docs/backtest.md. Text is for people and may change.
package backtest
