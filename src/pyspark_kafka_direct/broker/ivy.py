"""A program that downloads jars with the Ivy that PySpark includes.

    PYSPARK_KAFKA_DIRECT_JAVA=java python ivy.py TARGET (transitive|alone) COORDINATE...

It is a separate process because a py4j gateway leaves threads and sockets behind, and because ``broker`` must not
import PySpark. The jars are in TARGET/ivy/jars afterwards; Ivy's report goes to standard error.

The program avoids two problems. With an incomplete local Maven repository in the home folder, Ivy fails with "FAILED
DOWNLOADS", so the JVM gets another ``user.home``. Spark excludes scala-library from every resolution, because Spark's
class path contains it, so the program copies that jar from there if dependencies are requested.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

IVY_SETTINGS_VARIABLE = "PYSPARK_KAFKA_DIRECT_IVY_SETTINGS"

# These halve the CPU time of a JVM that ends after seconds. With one processor, it selects the serial collector. The
# option for that collector would be an error if JAVA_TOOL_OPTIONS selects another one.
_SHORT_LIVED = ["-XX:TieredStopAtLevel=1", "-XX:ActiveProcessorCount=1"]


def main(target: Path, coordinates: list[str], *, transitive: bool) -> None:
    """Resolve ``group:artifact:version`` coordinates into ``target/ivy/jars``."""
    import pyspark
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    spark_jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    port, token = launch_gateway(
        port=0,
        jarpath=str(next(spark_jars.glob("py4j-*.jar"))),
        classpath=str(spark_jars / "*"),
        javaopts=["-Xmx512m", *_SHORT_LIVED, f"-Duser.home={target / 'home'}"],
        die_on_exit=True,
        enable_auth=True,
        redirect_stderr=sys.stderr,
        java_path=os.environ["PYSPARK_KAFKA_DIRECT_JAVA"],
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        scala, utils = gateway.jvm.scala, gateway.jvm.org.apache.spark.util.MavenUtils
        # In the settings, `none` means no further repositories; in the resolution, no second one without the cache.
        none, ivy, log = scala.Option.empty(), scala.Option.apply(str(target / "ivy")), gateway.jvm.java.lang.System.err
        use_local_maven_repository, is_test = True, False  # Spark's defaults; the repository in the new home is empty
        settings_file = os.environ.get(IVY_SETTINGS_VARIABLE)  # for networks with a mirror of Maven Central
        settings = (
            utils.loadIvySettings(settings_file, none, ivy, log)
            if settings_file
            else utils.buildIvySettings(none, ivy, use_local_maven_repository, log)
        )
        no_exclusions = scala.collection.immutable.List.newBuilder().result()
        names = ",".join(coordinates)
        utils.resolveMavenCoordinates(names, settings, none, transitive, no_exclusions, is_test, log)
    finally:
        gateway.shutdown()
    if transitive:
        for jar in spark_jars.glob("scala-library-2.13*.jar"):
            shutil.copy(jar, target / "ivy" / "jars")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[3:], transitive=sys.argv[2] == "transitive")
