#!/bin/sh
# Runs a compiler and keeps what it says beside the object, for tests that read it.
#
#   keep_messages.sh OBJECT COMMAND...      writes OBJECT.messages
messages=$1.messages
shift
"$@" 2>"$messages"
status=$?
cat "$messages" >&2
exit $status
