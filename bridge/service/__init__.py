"""Installing, starting, stopping and removing the agent on a VM, for every way of deployment.

`sebridge service`, the VM extension, the VM application and cloud-init all end up here. This
package and `bridge.extension` import nothing but the standard library and each other: they run
from inside the wheel, before anything is installed.
"""
