#!/bin/bash
# The same in bash: curl, jq and mosquitto_pub.
endpoint=$1 port=$2 interval=$3
url="$endpoint/metadata/scheduledevents?api-version=2020-07-01"
incarnation=
while true; do
  document=$(curl -s -H Metadata:true "$url")
  now=$(jq .DocumentIncarnation <<<"$document")
  if [ "$now" != "$incarnation" ]; then
    incarnation=$now
    jq -c '.Events[] | {specversion: "1.0", id: .EventId, source: "/bench/bash", type: "scheduledevent", data: .}' <<<"$document" |
      mosquitto_pub -p "$port" -q 1 -t bench/events -l
  fi
  sleep "$interval"
done
