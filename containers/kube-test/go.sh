# Sourced by rig.sh. What is compiled here needs a newer Go than some Debians have; Go's toolchains are modules, which
# any go command fetches and checks.
GO=1.26.8

# use_go: puts a go command that is new enough first on PATH. Needs one of any version.
use_go() {
    local have folder
    have=$(GOTOOLCHAIN=local go env GOVERSION)
    [ "$(printf '%s\n' "${GO%.*}" "${have#go}" | sort -V | head -n 1)" != "${GO%.*}" ] || return 0
    echo "Go here is ${have#go}: fetching $GO" >&2
    # Not in a module: its own go.mod may ask for what this go command does not know.
    folder=$(cd / && GOTOOLCHAIN=local GOFLAGS=-modcacherw go mod download -json \
        "golang.org/toolchain@v0.0.1-go$GO.$(go env GOOS)-$(go env GOARCH)" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    [ -n "$folder" ] || return 1
    # Modules come without the right to run what is in them.
    chmod +x "$folder"/bin/* "$folder"/pkg/tool/*/*
    export PATH=$folder/bin:$PATH GOTOOLCHAIN=local
}
