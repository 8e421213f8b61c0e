#!/bin/sh
# Publishes the package of `make extension` as a version of a VM application.
#   publish.sh RESOURCE_GROUP GALLERY LOCATION VERSION PACKAGE_URL [CONFIGURATION_URL]
# The URLs are blobs that Azure can read (with a SAS): the zip, and a TOML file.
set -eu
group=$1 gallery=$2 location=$3 version=$4 package=$5 configuration=${6:-}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

az sig gallery-application create --resource-group "$group" --gallery-name "$gallery" \
    --name sebridge --location "$location" --os-type Linux
# Install and update are the same: both leave this version running, and the ledger as it is.
az sig gallery-application version create --resource-group "$group" --gallery-name "$gallery" \
    --application-name sebridge --name "$version" --location "$location" \
    --package-file-link "$package" \
    ${configuration:+--default-configuration-file-link "$configuration"} \
    --package-file-name sebridge --config-file-name sebridge-config \
    --install-command "$(cat "$here/install")" \
    --update-command "$(cat "$here/install")" \
    --remove-command "$(cat "$here/remove")"
