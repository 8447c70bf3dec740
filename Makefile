# A thin front for CMake and scripts/. Everything built goes to build/.

PREFIX ?= /usr/local
BUILD  := build

export DESTDIR

.PHONY: help demo test test-long build bench fuzz lint format install clean

help:
	@echo 'make demo       kill a simulation again and again, compare its result bit by bit'
	@echo 'make test       build, lint, check and run all tests (also under sanitizers)'
	@echo 'make test-long  the tests that take minutes, and longer fuzzing'
	@echo 'make build      executables in build/bin, libraries in build/lib'
	@echo 'make bench      run all experiments, results in build/bench; BENCH=arguments of belay-bench'
	@echo 'make fuzz       fuzz every decoder; TIME=seconds for each (60)'
	@echo 'make lint       clang-format, clang-tidy, cppcheck, gcc -fanalyzer'
	@echo 'make format     clang-format in place'
	@echo 'make install    to PREFIX (/usr/local), below DESTDIR'
	@echo 'make clean      remove build/'

demo:
	@scripts/setup.sh demo
	@scripts/build.sh $(BUILD)
	@scripts/demo.sh

test:
	@scripts/setup.sh test
	@scripts/test.sh

test-long:
	@scripts/setup.sh long
	@scripts/test.sh --long

build:
	@scripts/setup.sh build
	@scripts/build.sh $(BUILD)

BENCH ?= all --json $(BUILD)/bench --dir $(BUILD)
bench: build
	@$(BUILD)/bin/belay-bench $(BENCH)

TIME ?= 60
fuzz:
	@scripts/setup.sh test
	@scripts/fuzz.sh $(TIME)

lint:
	@scripts/setup.sh test
	@scripts/lint.sh

format:
	@scripts/setup.sh test
	@scripts/lint.sh --format

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

clean:
	rm -rf $(BUILD)
