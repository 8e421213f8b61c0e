#!/bin/sh
# Run by the Custom Script extension, or by hand, in a folder with the package's zip and, if you like,
# a config.toml. Running it again with a newer zip updates; the ledger stays.
set -eu
zip=$(ls Sebridge.ScheduledEventsBridge__*.zip | tail -n 1)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m zipfile -e "$zip" "$folder"
setup="$folder/bin/sebridge-setup"
sh "$setup" service update
if [ -f config.toml ]; then
    sh "$setup" service enable --config config.toml
else
    sh "$setup" service enable
fi
