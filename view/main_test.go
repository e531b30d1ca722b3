package view

import (
	"os"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

func TestMain(m *testing.M) { os.Exit(testtool.Main(m)) }
