# ckpt - see README.md.  make help lists the targets.
#
#   make [MODE=release|debug|asan|fault] [MPI=0|1] [CUDA=0|1]
#
# MODE=fault compiles in failure injection (libckpt/base/fault.h); never install that one.
MODE    ?= release
B       := build/$(MODE)
PREFIX  ?= /usr/local
DESTDIR ?=
OBJCOPY ?= objcopy
VERSION := $(shell sed -n 's/^\#define CKPT_VERSION "\(.*\)"/\1/p' libckpt/ckpt.h)

CLANG   ?= clang
MPI     ?= $(if $(shell command -v mpicc 2>/dev/null),1,0)
GLOO    ?= $(if $(wildcard /usr/include/gloo/context.h /usr/local/include/gloo/context.h),1,0)
NVCC    ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc) nvcc)
# The plug-in for GPUs is built where CUDA 13's compiler and cuBLASLt are (device_open.c loads that
# version's library); under a sanitizer not at all.
CUDA    ?= $(if $(filter asan fault,$(MODE)),0,$(if $(findstring release 13.,$(shell $(NVCC) --version 2>/dev/null)),$(if \
             $(wildcard $(dir $(NVCC))../include/cublasLt.h /usr/include/cublasLt.h /usr/local/cuda/include/cublasLt.h),1,0),0))

# What Debian 12 and Ubuntu 24.04 call what is needed to build, test and run the demo.
PACKAGES := gcc make pkg-config git git-lfs ca-certificates g++ libjansson-dev libyaml-dev libssl-dev zlib1g-dev \
            libutf8proc-dev libpcre2-dev libopenblas-dev libxxhash-dev libarchive-dev libcurl4-openssl-dev \
            libgit2-dev libsnappy-dev libzstd-dev liblz4-dev libbrotli-dev libopenmpi-dev openmpi-bin libgloo-dev libcmocka-dev mandoc wordnet-base openssh-client openssh-server curl \
            docker-registry skopeo apache2-utils rclone python3 time
# Not in all of their versions: a browser, in which tests open pages.
OFFERED  := chromium-headless-shell

PC_CKPT  := jansson libarchive libcrypto zlib libxxhash libutf8proc libpcre2-8 libgit2 snappy libzstd liblz4 libbrotlidec yaml-0.1
PC       = $(shell pkg-config $(1) $(2) 2>/dev/null)

HARDEN   := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection \
            -fcf-protection=full -fno-delete-null-pointer-checks -fno-strict-overflow -fno-strict-aliasing \
            -ftrivial-auto-var-init=zero -fexceptions
WARN     := -Wall -Wextra -Wformat=2 -Wconversion -Wsign-conversion -Wshadow -Wvla -Wimplicit-fallthrough \
            -Wtrampolines -Wbidi-chars=any -Werror=format-security -Werror=implicit \
            -Werror=incompatible-pointer-types -Werror=int-conversion $(WERROR)
CFLAGS_release := -O2 -g $(HARDEN)
CFLAGS_debug   := -O0 -g
CFLAGS_asan    := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined -DCKPT_FAULTS
CFLAGS_fault   := -O1 -g -DCKPT_FAULTS

CPPFLAGS += -I. -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64
ALL_CFLAGS = -std=c11 $(WARN) -fPIC $(VISIBILITY) $(CFLAGS_$(MODE)) $(call PC,--cflags,$(PC_CKPT)) $(CFLAGS)
ALL_LDFLAGS = $(filter -fsanitize%,$(CFLAGS_$(MODE))) -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--as-needed $(LDFLAGS)
# libckpt.map lets only ckpt_ names out of the library; tests see all.
VISIBILITY = -fvisibility=default -fno-semantic-interposition
LIBS_CKPT = $(call PC,--libs,$(PC_CKPT)) -lpthread -lm
LIBS_TRAIN = -lopenblas -fopenmp -ldl $(LIBS_CKPT)
LIBS_TOOLS = $(LIBS_CKPT)

# A floor is a folder; its rooms are the sources under it.  No list to keep in step.
rooms   = $(sort $(shell find $(1) -name '*.c' 2>/dev/null))
obj     = $(patsubst %.c,$B/%.o,$(1))
PLUGINS_C := trainer/comm/mpi.c
CKPT    := $(call rooms,libckpt formats)
TRAIN   := $(filter-out trainer/cuda/% $(PLUGINS_C),$(call rooms,trainer))
MAINS   := $(wildcard tools/ckpt-*.c)
SHARED  := $(filter-out $(MAINS),$(call rooms,tools))
TOOLS   := $(MAINS:tools/%.c=$B/%)
# A folder of tests is one program, build/MODE/units/FOLDER.
SUITES  := $(patsubst %/,%,$(wildcard tests/unit/*/)) tests/agree tests/fault $(if $(filter release debug,$(MODE)),tests/emulate)
UNITS   := $(addprefix $B/units/,$(notdir $(SUITES)))
FUZZERS := $(patsubst tests/%.c,$B/%,$(wildcard tests/fuzz/fuzz_*.c))
GPUTESTS := $(patsubst tests/%.c,$B/%,$(wildcard tests/gpu/test_*.c))
GPUBENCH := $(addprefix $B/gpu/bench_,attention gpu ops products ring)
CUDA_O  := $(patsubst %.cu,$B/%.o,$(sort $(shell find trainer/cuda -name '*.cu')))
PLUGINS := $(if $(filter 1,$(MPI)),$(if $(wildcard trainer/comm/mpi.c),$B/libckpt_mpi.so)) \
           $(if $(filter 1,$(GLOO)),$B/libckpt_gloo.so) \
           $(if $(filter 1,$(CUDA)),$B/libckpt_cuda.so)

# A line for each folder that is worked on; make V=1 shows whole commands.
Q := $(if $(V),,@)
$(shell rm -rf $B/.said)
say = $(if $(V),,@mkdir -p $B/.said; mkdir $B/.said/$(1)-$(subst /,-,$(2)) 2>/dev/null && echo "$(1) $(2)" || true)

all: $(TOOLS) $(PLUGINS) $B/libckpt.so   ## build tools, library and plug-ins (the default)

$B/libckpt.a:  $(call obj,$(CKPT))
$B/libtrain.a: $(call obj,$(TRAIN))
$B/libcli.a:   $(call obj,$(SHARED))
$B/%.a:
	$(if $(V),,@echo AR $@)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$B/libckpt.so: $(call obj,$(CKPT)) libckpt/libckpt.map
	$(if $(V),,@echo LD $@)
	$(Q)$(CC) -shared $(ALL_LDFLAGS) -Wl,-soname,libckpt.so.0 -Wl,--version-script=libckpt/libckpt.map -o $@ $(filter %.o,$^) $(LIBS_CKPT)
# The archive for others: one object, which lets out the names of libckpt.map and no more.
$B/installed/libckpt.a: $(call obj,$(CKPT)) libckpt/libckpt.map
	@mkdir -p $(@D)
	$(if $(V),,@echo LD $@)
	$(Q)grep -o 'ckpt_[a-z0-9_]*' libckpt/libckpt.map > $(@D)/names
	$(Q)$(LD) -r -o $(@D)/ckpt.o $(filter %.o,$^)
	$(Q)$(OBJCOPY) --keep-global-symbols=$(@D)/names $(@D)/ckpt.o
	@rm -f $@
	$(Q)$(AR) rcs $@ $(@D)/ckpt.o

$(TOOLS): $B/%: $B/tools/%.o $B/libcli.a $B/libtrain.a $B/libckpt.a
	$(if $(V),,@echo LD $@)
	$(Q)$(CC) -pie $(ALL_LDFLAGS) -o $@ $< $(filter %.a,$^) $(if $(filter %ckpt-train %ckpt-eval,$@),$(LIBS_TRAIN)) $(LIBS_TOOLS)

# Tests share the rooms as one object: what changes in a room links that, and no test anew.  A test
# may put a table of its own in the place of the library's.
$B/libhouse.so: $(call obj,$(CKPT) $(TRAIN) $(SHARED))
	$(if $(V),,@echo LD $@)
	$(Q)$(CC) -shared $(ALL_LDFLAGS) -Wl,-Bsymbolic-functions -o $@ $^ $(LIBS_TRAIN) $(LIBS_TOOLS)
$(foreach d,$(SUITES),$(eval $B/units/$(notdir $d): $(call obj,$(wildcard $d/test_*.c))))
$(UNITS): $B/tests/unit/driver.o | $B/libhouse.so
	@mkdir -p $(@D)
	$(if $(V),,@echo LD $@)
	$(Q)$(CC) -pie $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN/..' -o $@ $^ $B/libhouse.so -lcmocka $(LIBS_TRAIN)

# Rooms of trainer/cuda whose kernels run on the host (tests/emulate), in the plug-in's place; what
# would have to be installed beside it is empty.
EMULATED := $(patsubst %,$B/emulate/%.o,optim adamw rules factored muon \
	$(addprefix matmul/,linear linear_parts lora lora_many))
$B/emulate/%.o: trainer/cuda/%.cu Makefile
	@mkdir -p $(@D)
	$(call say,CXX,tests/emulate)
	$(Q)$(CXX) -std=c++17 -fPIC -Itests/emulate $(EMULATE_CXX) -x c++ -MMD -MP -c -o $@ $<
$B/emulate/%.o: tests/emulate/%.cc Makefile
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++17 -fPIC -Itests/emulate $(EMULATE_CXX) -MMD -MP -c -o $@ $<
EMULATE_CXX = -Wall -Wextra -Wno-unknown-pragmas -Wno-sizeof-array-div $(CPPFLAGS) $(CFLAGS_$(MODE)) -fno-exceptions
$B/emulate/libckpt_cuda.so: $(EMULATED) $B/emulate/fibers.o $B/emulate/products.o $B/emulate/rows.o $B/tests/emulate/plugin.o $B/libtrain.a $B/libckpt.a
	$(if $(V),,@echo LD $@)
	@for so in libcuda.so.1 libcublasLt.so.13; do $(CC) -shared -Wl,-soname,$$so -o $(@D)/$$so -x c /dev/null || exit 1; done
	$(Q)$(CXX) -shared $(ALL_LDFLAGS) -o $@ $^ $(LIBS_TRAIN)
$B/units/emulate: | $B/emulate/libckpt_cuda.so

# A hub on loopback, for the scripts that read from addresses.
$B/serve: $(call obj,$(filter-out tests/serve/kill_at.c,$(wildcard tests/serve/*.c)))
	$(if $(V),,@echo LD $@)
	$(Q)$(CC) -pie $(ALL_LDFLAGS) -o $@ $^ -ljansson -lyaml -lxxhash -lcrypto -lpthread

# Kills a program at a system call, for the scripts that stop saves in their midst.
$B/kill_at: $B/tests/serve/kill_at.o
	$(if $(V),,@echo LD $@)
	$(Q)$(CC) -pie $(ALL_LDFLAGS) -o $@ $^

$B/libckpt_mpi.so: trainer/comm/mpi.c $(wildcard trainer/comm/*.h)
	@mkdir -p $(@D)
	$(if $(V),,@echo LD $@)
	$(Q)mpicc -shared $(CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $<
$B/libckpt_gloo.so: trainer/comm/gloo.cc $(wildcard trainer/comm/*.h)
	@mkdir -p $(@D)
	$(if $(V),,@echo LD $@)
	$(Q)$(CXX) -std=c++17 -shared -fPIC -fvisibility=hidden -Wall -Wextra $(if $(WERROR),-Werror) $(CPPFLAGS) $(filter -f%,$(CFLAGS_$(MODE))) -O2 \
	    $(CFLAGS) $(ALL_LDFLAGS) -o $@ $< -lgloo -lpthread

# Hopper gets code of its own; others from 8.0 on start from the PTX, which the driver compiles once.
CUDA_ARCH ?= -gencode=arch=compute_80,code=compute_80 -gencode=arch=compute_90a,code=sm_90a
NVCC_FLAGS = -std=c++17 -O3 -lineinfo -I. -D_GNU_SOURCE $(CUDA_ARCH) -diag-suppress 20013 \
             -Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra$(if $(WERROR),$(comma)-Werror)
comma := ,
$B/trainer/cuda/%.o: trainer/cuda/%.cu Makefile
	@mkdir -p $(@D)
	$(call say,NVCC,$(<D))
	$(Q)$(NVCC) $(NVCC_FLAGS) -MMD -MP -c -o $@ $<
# The rooms of the floors below that the plug-in takes along.
$B/libckpt_cuda.so: $(CUDA_O) $B/libckpt/dtype.o $B/formats/bnb/codes.o
	$(if $(V),,@echo LD $@)
	$(Q)$(NVCC) -shared -cudart static -Xlinker -z,defs,-z,relro,-z,now -Xcompiler -static-libstdc++,-static-libgcc -o $@ $^ -lcublasLt -ldl
$B/gpu/bench_gpu: $B/tests/perf/gpu_watch.o
$B/gpu/bench_%: $B/tests/perf/bench_%.o $B/libtrain.a $B/libckpt.a
	@mkdir -p $(@D)
	$(call say,LD,$(@D))
	$(Q)$(CC) -pie $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LIBS_TRAIN)
# In the plug-in's place; the second says that it is of another version.
$B/gpu/fault_plugin.so $B/gpu/fault_plugin_other.so: tests/gpu/fault_plugin.c $B/libtrain.a $B/libckpt.a
	@mkdir -p $(@D)
	$(if $(V),,@echo LD $@)
	$(Q)$(CC) -shared -I. -D_GNU_SOURCE $(ALL_CFLAGS) $(if $(findstring other,$@),-DFAULT_VERSION=CUDA_PLUGIN_VERSION+1) -o $@ $^ $(LIBS_TRAIN)
$B/gpu/test_%: $B/tests/gpu/test_%.o $B/tests/unit/driver.o $B/libtrain.a $B/libckpt.a
	@mkdir -p $(@D)
	$(call say,LD,$(@D))
	$(Q)$(CC) -pie $(ALL_LDFLAGS) -o $@ $^ -lcmocka $(LIBS_TRAIN)

# Hot loops of the CPU backend: vector code is chosen per function at run time.
$B/trainer/cpu/%.o: TRAIN_CFLAGS := -O3 -fopenmp
$B/trainer/cpu/row_product.o: TRAIN_CFLAGS := -O3 -fopenmp -ffp-contract=fast
$B/trainer/comm/shared.o: TRAIN_CFLAGS := -O3
$B/trainer/%.o: TRAIN_CFLAGS ?= -fopenmp

$B/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$(<D))
	$(Q)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) $(TRAIN_CFLAGS) -MMD -MP -c -o $@ $<

# The pages of ckpt-inspect and ckpt-eval --html, their style sheet, and the script in checkpoints, as strings.
$B/tools/inspect/page.inc: tools/inspect/page.html
$B/tools/inspect/page/style.inc: tools/inspect/page/style.css
$B/tools/eval/page.inc: tools/eval/page.html
$B/formats/deepspeed/write/zero_to_fp32.inc: formats/deepspeed/write/zero_to_fp32.py
$B/%.inc:
	@mkdir -p $(@D)
	@sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n"/' $< > $@
$B/tools/inspect/html.o: $B/tools/inspect/page.inc
$B/tools/inspect/page/style.o: $B/tools/inspect/page/style.inc
$B/tools/eval/page.o: $B/tools/eval/page.inc
$B/formats/deepspeed/write/out.o: $B/formats/deepspeed/write/zero_to_fp32.inc
$B/tools/inspect/html.o $B/tools/inspect/page/style.o $B/tools/eval/page.o $B/formats/deepspeed/write/out.o: CPPFLAGS += -I$B

check: all $(UNITS)                                 ## unit and golden tests, a minute or two; before every commit; ONLY=: these
	@tests/run.sh $(MODE):units

deps:                                               ## install what is missing (Debian, Ubuntu)
	@lacks() { for p; do \
	    dpkg-query -W -f='$${Status}\n' $$p 2>/dev/null | grep -q ' ok installed' || echo $$p; done; }; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	get() { echo "installing:" $$*; \
	    $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$* >/dev/null; }; \
	missing=$$(lacks $(PACKAGES)); \
	if [ -n "$$missing" ]; then \
	    command -v apt-get >/dev/null || { echo "missing, and no apt-get to install them: $$missing" >&2; exit 1; }; \
	    $$sudo apt-get update -qq && get $$missing || exit 1; \
	fi; \
	for p in $$(lacks $(OFFERED)); do \
	    if apt-cache show $$p >/dev/null 2>&1; then get $$p || echo "not installed: $$p"; fi; \
	done

# What was just installed decides how things are built, hence a make of its own.
JOBS := -j$(shell nproc 2>/dev/null || echo 1)
demo: deps                                          ## the whole pipeline on real text: train, merge, inspect, evaluate, push, verify
	@$(MAKE) --no-print-directory -s $(JOBS) all
	@tools/recipes/demo/demo.sh $B

test: deps                                          ## install, build and run every test that needs no accelerator
	@$(MAKE) --no-print-directory -s $(JOBS) all units
	@$(MAKE) --no-print-directory -s $(JOBS) MODE=asan all units
	@tests/run.sh release:units release:e2e asan:units asan:e2e

units: $(UNITS) $B/serve $B/kill_at

check-ranks: all                                    ## what may go wrong once in a hundred starts of ranks: 200 starts, 20 signals
	@STARTS=100 SIGNALS=20 BUILD=$B bash tests/e2e/35-ranks.sh | sed -n '/^not ok/,/^ok/p; /starts of\|random moments/p'

check-kills: all units                              ## runs and pushes killed at every system call on their folder: half an hour
	@KILLS=all BUILD=$B bash tests/e2e/61-kills.sh
	@KILLS=all BUILD=$B bash tests/e2e/61-own-disks.sh
	@STEP=1 BYTES=200 BUILD=$B bash tests/e2e/64-push-kills.sh
	@STEP=1 BUILD=$B bash tests/e2e/65-push-statuses.sh
	@STEP=1 TURNS=10 BUILD=$B bash tests/e2e/66-push-broken.sh

CYCLES ?= 1000
check-cycles: all                                   ## CYCLES stops of runs at random moments, each run to the end of an unbroken one
	@CYCLES=$(CYCLES) SEED=$(SEED) BUILD=$B bash tests/e2e/62-cycles.sh

gpu-tests: $(GPUTESTS) $B/gpu/fault_plugin.so $B/gpu/fault_plugin_other.so $(GPUBENCH)

check-gpu: all gpu-tests                            ## every operation, model and run on a GPU against the CPU
	@tests/gpu/check.sh $B

bundle: all                                         ## build/ckpt-VERSION-x86_64.tar.xz: tools, plug-ins and libraries, runs anywhere
	@tools/recipes/bundle.sh $B build/ckpt-$(VERSION)-x86_64

lint: $(if $(shell command -v $(CLANG) 2>/dev/null),analyze)     ## floors, banned functions, length of rooms; the analyzer where clang is
	@tests/lint.sh

# clang's static analyzer over the rooms that changed since they were last clean.
ANALYZED := $(patsubst %.c,build/analyze/%.ok,$(filter-out $(PLUGINS_C),$(call rooms,libckpt formats trainer tools)))
build/analyze/%.ok: %.c | build/release/tools/inspect/page.inc build/release/tools/inspect/page/style.inc build/release/tools/eval/page.inc build/release/formats/deepspeed/write/zero_to_fp32.inc
	@mkdir -p $(@D)
	$(Q)$(CLANG) --analyze -Xclang -analyzer-werror -std=c11 $(if $(filter libckpt/err.c libckpt/mem.c,$<),,-include tests/analyze.h) \
	    -Ibuild/release $(CPPFLAGS) $(call PC,--cflags,$(PC_CKPT)) -MMD -MP -MF $(@:.ok=.d) -MT $@ -o /dev/null $< && touch $@
analyze: $(ANALYZED)                                ## clang's static analyzer, over what changed since the last time

bench: all                                          ## figures of speed and memory against peers, where they are installed
	@tests/perf/bench.sh $B

bench-gpu: all $B/gpu/bench_gpu                     ## training and generation on a GPU against PyTorch; LINES=..., see the script
	@tests/perf/bench_gpu.sh $B

check-peers: all $B/serve                                    ## let torch, DeepSpeed and transformers load what we write (a venv of their own)
	@tests/peers/check.sh $B

FUZZ_SECONDS ?= 60
fuzz:                                               ## fuzz every parser (ONLY: these) for FUZZ_SECONDS each, two at once (clang)
	@ONLY="$(ONLY)" tests/fuzz/run.sh $(FUZZ_SECONDS)

fields: $B/ckpt-train                               ## write the lists of fields in man/ckpt-run.5 anew
	@$B/ckpt-train --print-fields | awk -f man/fields.awk >$B/fields.mdoc
	@sed -i -e '/^.\\" fields begin/r $B/fields.mdoc' -e '/^.\\" fields begin/,/^.\\" fields end/{/^.\\" fields/!d}' man/ckpt-run.5

install: all $B/installed/libckpt.a                 ## install below PREFIX (and DESTDIR)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/ckpt $(DESTDIR)$(PREFIX)/lib/pkgconfig
	install -m 755 $(TOOLS) $(DESTDIR)$(PREFIX)/bin
	install -m 755 $B/libckpt.so $(DESTDIR)$(PREFIX)/lib/libckpt.so.0
	ln -sf libckpt.so.0 $(DESTDIR)$(PREFIX)/lib/libckpt.so
	install -m 644 $B/installed/libckpt.a $(DESTDIR)$(PREFIX)/lib
	$(if $(PLUGINS),install -m 755 $(PLUGINS) $(DESTDIR)$(PREFIX)/lib/ckpt)
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' -e 's|@REQUIRES@|$(PC_CKPT)|' libckpt/ckpt.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/ckpt.pc
	install -d $(DESTDIR)$(PREFIX)/include/ckpt/libckpt $(DESTDIR)$(PREFIX)/share/doc/ckpt
	install -m 644 libckpt/*.h $(DESTDIR)$(PREFIX)/include/ckpt/libckpt
	install -m 644 man/examples/*.c $(DESTDIR)$(PREFIX)/share/doc/ckpt
	for t in $(MAINS:tools/%.c=%); do \
	    d=$(DESTDIR)$(PREFIX)/share; \
	    install -d $$d/bash-completion/completions $$d/zsh/site-functions $$d/fish/vendor_completions.d || exit 1; \
	    $B/$$t --completion bash >$$d/bash-completion/completions/$$t && $B/$$t --completion zsh >$$d/zsh/site-functions/_$$t && \
	    $B/$$t --completion fish >$$d/fish/vendor_completions.d/$$t.fish || exit 1; done
	for m in $(wildcard man/*.[0-9]); do \
	    install -D -m 644 $$m $(DESTDIR)$(PREFIX)/share/man/man$${m##*.}/$${m##*/}; done

dist:                                               ## ckpt-VERSION.tar.gz of the committed tree
	git archive --prefix=ckpt-$(VERSION)/ -o ckpt-$(VERSION).tar.gz HEAD

clean:                                              ## remove build/
	rm -rf build

help:                                               ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 16
	@echo; echo 'One test (tests/README.md):'
	@printf '  %-48s  %s\n' 'make check ONLY=test_lock' 'a suite, or all whose path has this in it' \
	    '$B/units/libckpt lock' 'a suite of a folder; --list tells their names' \
	    'BUILD=$B bash tests/e2e/40-merge.sh' 'a script'

-include $(shell find $B build/analyze -name '*.d' 2>/dev/null)
.SECONDARY:
.PHONY: all check check-ranks check-kills check-cycles deps demo test units gpu-tests check-gpu bundle lint analyze bench bench-gpu check-peers fuzz fields install dist clean help
