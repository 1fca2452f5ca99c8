// SPDX-License-Identifier: MIT

//go:build tools

// Package tools keeps the version of grpcurl in go.mod, though nothing here imports it.
package tools

import _ "github.com/fullstorydev/grpcurl/cmd/grpcurl"
