"""kubernetes.py FILE WORLD - does the manifest hold together?  Prints the Job's command line, a word a line.

kubernetes-validate (launchers.sh) holds it against the schema; here is what no schema knows: that names agree, that there
are as many pods as ranks, and that statuses are sorted as ckpt-train means them."""
import sys
import yaml

docs = {d["kind"]: d for d in yaml.safe_load_all(open(sys.argv[1]))}
job, service = docs["Job"]["spec"], docs["Service"]
pod = job["template"]["spec"]
(rank,), (meet,) = pod["containers"], pod["initContainers"]
env = {e["name"]: e for e in rank["env"]}

def same(what, *values):
    if len(set(map(str, values))) != 1:
        sys.exit(f"{what}: {', '.join(map(str, values))}")

same("number of ranks", job["completions"], job["parallelism"], env["WORLD_SIZE"]["value"])
same("mode", job["completionMode"], "Indexed")
same("restartPolicy with a podFailurePolicy", pod["restartPolicy"], "Never")
same("subdomain", pod["subdomain"], service["metadata"]["name"])
same("headless", service["spec"]["clusterIP"], "None")
same("pods of the service", service["spec"]["selector"]["job-name"], docs["Job"]["metadata"]["name"])
same("first pod", env["MASTER_ADDR"]["value"], f"{docs['Job']['metadata']['name']}-0.{service['metadata']['name']}")
same("port", env["MASTER_PORT"]["value"], service["spec"]["ports"][0]["port"])
same("RANK", env["RANK"]["valueFrom"]["fieldRef"]["fieldPath"], "metadata.annotations['batch.kubernetes.io/job-completion-index']")
same("image", rank["image"], meet["image"])
same("claim", docs["PersistentVolumeClaim"]["metadata"]["name"],
     *(v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v))
ignore, fail = job["podFailurePolicy"]["rules"]
same("moved pods", ignore["action"], "Ignore")
codes = fail["onExitCodes"]["values"]
same("statuses that end the Job", fail["action"], "FailJob")
same("their container", fail["onExitCodes"]["containerName"], rank["name"])
same("their order", codes, sorted(set(codes)))
same("75, 137 and 143 run again", set(codes) & {0, 75, 137, 143}, set())
same("sysexits end the Job", set(range(64, 79)) - {75} - set(codes), set())
open(sys.argv[2], "w").write(meet["command"][2])
print("\n".join(rank["command"] + rank["args"]))
